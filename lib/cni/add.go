package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"ovn-k8s/lib/cni/protocol"
	"ovn-k8s/lib/defect"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// undoTimeout bounds each step that ignores ctx. DEL removes the rest.
const undoTimeout = 10 * time.Second

// An addition is a running ADD.
type addition struct {
	*node
	attachment
	ns       *link.Namespace
	datapath string // of br-int
	pod      podRef
	known    known // from the API server
	lap      time.Time
	stages   logrus.Fields
}

// add gives a pod its interface. It returns when ovn-controller has installed its flows: the pod's first packet
// passes.
//
// Nothing is created before the pod's addresses are known. Then comes the veth pair, its host end named after the
// container and created in our interface group, then the port of br-int. Adding an existing attachment again changes nothing.
func (n *node) add(ctx context.Context, args *skel.CmdArgs, conf *types.PluginConf) (*types100.Result, error) {
	pod, err := parsePod(args.Args)
	if err != nil {
		return nil, err
	}
	if conf.RawPrevResult != nil {
		return nil, types.NewError(types.ErrUnsupportedField, fmt.Sprintf("prevResult: %v", conf.RawPrevResult), "this plugin must be the first of its list")
	}
	if err := n.usable(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, n.config.CNITimeout)
	defer cancel()
	self, err := newAttachment(args, conf).settled()
	if err != nil {
		return nil, err
	}
	a := &addition{node: n, attachment: self, pod: pod, lap: n.started, stages: logrus.Fields{}}
	watch, err := a.watchPod(ctx) // connects in the background
	if err != nil {
		return nil, err
	}
	defer watch.stop()
	if err := a.claimable(); err != nil {
		return nil, err
	}
	if a.ns, err = a.open(); err != nil {
		return nil, err
	}
	defer func() { _ = a.ns.Close() }()
	if a.datapath, err = n.knownDatapath(ctx); err != nil {
		return nil, err
	}
	a.stage("config")
	if a.known, err = watch.first(ctx); err != nil {
		return nil, err
	}
	a.stage("annotation")
	return a.make(ctx, watch)
}

// knownDatapath is bridgeDatapath, from a copy brought up to date for this command if br-int is there.
func (n *node) knownDatapath(ctx context.Context) (string, error) {
	if n.fresh {
		if datapath, err := n.sw.CopiedDatapathType(ctx, names.IntegrationBridge); err == nil {
			return datapath, nil
		}
	}
	return n.bridgeDatapath(ctx)
}

// claimable is an error if the host end's name belongs to another attachment: the plugin gives a container one
// interface.
func (a *addition) claimable() error {
	alias, ok, err := link.HostEnd(a.host())
	if !ok || err != nil {
		return err
	}
	if other, ok := parseAlias(alias); ok && (other.container != a.container || other.ifname != a.ifname) {
		return types.NewError(types.ErrInvalidEnvironmentVariables,
			fmt.Sprintf("CNI_IFNAME is %s, but container %s has this network as %s already", a.ifname, other.container, other.ifname), "")
	}
	return nil
}

// make creates the attachment or, on an error, leaves nothing.
func (a *addition) make(ctx context.Context, watch *podWatch) (*types100.Result, error) {
	done := false
	defer func() {
		if !done {
			a.undo(ctx, a.pod, a.attachment)
		}
	}()
	if err := a.plug(ctx); err != nil {
		return nil, err
	}
	if err := a.awaitInstalled(ctx); err != nil {
		return nil, err
	}
	a.stage("installed")
	if err := watch.unchanged(a.known); err != nil {
		return nil, err
	}
	mac, err := link.MAC(a.host())
	if err != nil {
		return nil, err
	}
	a.stages["total"] = time.Since(a.started).Round(10 * time.Microsecond)
	a.log.WithFields(a.stages).Debug("ADD took")
	a.log.WithFields(logrus.Fields{"pod": a.pod, "container": a.container, "ip": ipnet.Join(a.known.addresses.IPs)}).Info("attached")
	done = true
	return result(a.attachment, a.known.addresses, a.config.MTU, mac), nil
}

// stage records the time since the previous stage.
func (a *addition) stage(name string) {
	now := time.Now()
	a.stages[name] = now.Sub(a.lap).Round(10 * time.Microsecond)
	a.lap = now
}

// plug configures both ends of the veth pair. Open vSwitch sets up the port in parallel with the container's end. A panic is an
// error: in a goroutine of its own it would end the CNI server.
func (a *addition) plug(ctx context.Context) error {
	mac, err := net.ParseMAC(a.known.addresses.MAC)
	if err != nil {
		return fmt.Errorf("parsing the pod's MAC: %w", err)
	}
	if err := a.ensureVeth(mac); err != nil {
		if errors.Is(err, link.ErrExists) {
			return types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_IFNAME or CNI_CONTAINERID is taken", err.Error())
		}
		return err
	}
	if err := a.linkNetns(); err != nil {
		return err
	}
	a.stage("veth")
	group, ctx := errgroup.WithContext(ctx)
	parallel := func(f func() error) { group.Go(func() error { return defect.Catch(f) }) }
	parallel(func() error { return a.attach(ctx) })
	parallel(func() error {
		defer func(start time.Time) { a.stages["container"] = time.Since(start).Round(10 * time.Microsecond) }(time.Now())
		return a.ns.Do(func() error { return a.configure(mac) })
	})
	err = group.Wait()
	a.stage("ovsdb")
	return err
}

// ensureVeth creates the veth pair, under another name if an ADD for another container has just taken it.
func (a *addition) ensureVeth(mac net.HardwareAddr) error {
	veth := link.Veth{Host: a.host(), Container: a.ifname, MAC: mac, MTU: a.config.MTU, Alias: a.alias()}
	err := veth.Ensure(a.ns)
	if !errors.Is(err, link.ErrExists) {
		return err
	}
	now, settling := a.settled()
	if settling != nil || now.unique == a.unique {
		return err
	}
	a.attachment, veth.Host = now, now.host()
	return veth.Ensure(a.ns)
}

// configure sets the container up, inside its namespace.
func (a *addition) configure(mac net.HardwareAddr) error {
	if err := link.SetUp("lo"); err != nil {
		return err
	}
	s := link.State{Interface: a.ifname, MAC: mac, MTU: a.config.MTU, Addresses: a.known.addresses.IPs}
	for _, gw := range a.known.addresses.Gateways {
		s.Routes = append(s.Routes, link.DefaultRoute(gw))
	}
	if err := link.Ensure(s); err != nil {
		return err
	}
	if a.datapath != names.UserspaceDatapath {
		return nil
	}
	if err := link.DisableTxChecksum(a.ifname); err != nil {
		return err
	}
	// Open vSwitch polices ingress of the host end in the kernel; the userspace datapath takes frames before that.
	return link.LimitEgress(a.ifname, a.known.limits.egress)
}

// attach adds the host end to br-int. Ports of earlier sandboxes of the pod are removed first: ovn-controller binds a
// logical port to one interface only.
func (a *addition) attach(ctx context.Context) error {
	ifaceID := names.PodPort(a.pod.namespace, a.pod.name)
	nic := ""
	stale, err := a.sw.DetachWhere(ctx, func(i vswitch.Interface) bool {
		if i.ExternalIDs[names.IfaceID] != ifaceID || i.Name == a.host() {
			return false
		}
		if i.ExternalIDs[names.GatewayTag] != "" {
			nic = i.Name
		}
		return i.ExternalIDs[names.CNINetwork] != ""
	})
	if err == nil && nic != "" { // the watcher gives such a pod no addresses: the annotation is from another source
		err = fmt.Errorf("logical port %s is that of the gateway's NIC %s: give pod %s or its namespace another name", ifaceID, nic, a.pod)
	}
	if err != nil {
		return plugging(ctx, err)
	}
	for _, name := range stale {
		a.log.WithFields(logrus.Fields{"pod": a.pod, "interface": name}).Info("detached an earlier sandbox")
		if err := a.deleteHostEnd(name); err != nil {
			return err
		}
	}
	// Not canceled half-way: undo must know whether the port exists.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	err = a.sw.AttachPort(ctx, vswitch.PodPort{
		Bridge: names.IntegrationBridge,
		Name:   a.host(),
		ExternalIDs: map[string]string{
			names.IfaceID:      ifaceID,
			names.IfaceIDVer:   a.known.uid,
			names.AttachedMAC:  a.known.addresses.MAC,
			names.IPAddress:    ipnet.Join(a.known.addresses.IPs),
			names.Sandbox:      a.container,
			names.CNINetwork:   a.network,
			names.CNIInterface: a.ifname,
			names.CNINetns:     a.netns,
		},
		IngressRate: int64(a.known.limits.ingress),
		EgressRate:  int64(a.known.limits.egress),
	})
	if err != nil {
		return plugging(ctx, err)
	}
	return nil
}

// plugging is the error of a port that Open vSwitch rejects, or the end of the request.
func plugging(ctx context.Context, err error) error {
	if interrupted(ctx, err) {
		return err
	}
	return types.NewError(protocol.Plugging, "failure in plugging pod interface", oneLine(err))
}

// undo removes the attachment of a failed ADD, even if ctx has ended.
func (n *node) undo(ctx context.Context, pod podRef, a attachment) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := n.remove(ctx, a); err != nil {
		n.log.WithFields(logrus.Fields{"pod": pod, "container": a.container}).Warnf("undoing a failed ADD: %v", err)
	}
}

// netnsDir is the directory of iproute2's named namespaces.
const netnsDir = "/var/run/netns"

// linkNetns names the container's namespace after the container's ID for "ip netns", unless the runtime has named it
// there already.
func (a *addition) linkNetns() error {
	for _, dir := range []string{netnsDir, "/run/netns"} {
		if strings.HasPrefix(filepath.Clean(a.netns), dir+"/") {
			return nil
		}
	}
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return fmt.Errorf("failure in creation of netns directory: %w", err)
	}
	if err := os.Symlink(a.netns, filepath.Join(netnsDir, a.container)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("naming the network namespace: %w", err)
	}
	return nil
}
