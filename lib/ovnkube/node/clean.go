package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/cni/protocol"
	"ovn-k8s/lib/desired/nodeclaim"
	"ovn-k8s/lib/gateway"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nicbridge"
	"ovn-k8s/lib/overlay/cnisetup"
	"ovn-k8s/lib/overlay/files"
	overlayhost "ovn-k8s/lib/overlay/host"
	overlaynode "ovn-k8s/lib/overlay/node"
	"ovn-k8s/lib/overlay/progress"
	"ovn-k8s/lib/overlay/uplink"
	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/ovnkube/report"
	"ovn-k8s/lib/settings"
)

// A cleaner takes back what the node role did on this host.
type cleaner struct {
	Options
	log  *logrus.Entry
	host *overlayhost.Host
	done int // changes
}

// Clean takes back what the node role of a Node did on this host, while that role does not run: the CNI configuration and
// the plugin, the gateway with the NIC's addresses, rules, the management port, and external_ids. br-int, ports of pods and
// whatever others have made stay. A repeated call finds nothing to do. Of Options it needs Name, Flags and Log.
func Clean(ctx context.Context, o Options) error {
	if err := link.NeedRoot(); err != nil {
		return err
	}
	if protocol.Served() {
		return fmt.Errorf("ovnkube serves %s, and would make everything again: stop it first", protocol.Socket)
	}
	r := settings.Runtime{Flags: o.Flags, Resolve: options.Config, Log: o.Log}
	sw, err := r.ConnectSwitch(ctx)
	if err != nil {
		return err
	}
	defer sw.Close()
	rundir, err := r.RunDir()
	if err != nil {
		return err
	}
	release, err := Hold(rundir)
	if err != nil {
		return err
	}
	defer release()
	cfg, err := r.Load(ctx, sw)
	if err != nil {
		return err
	}
	c := &cleaner{Options: o, log: settings.Log(o.Log, "node")}
	c.host = &overlayhost.Host{Config: cfg, Switch: sw, RunDir: cfg.RunDir, Report: progress.Log(func(text string) { c.log.Warn(text) })}
	// The kubelet starts no further pods. The claim goes early, so that others stop sending to this gateway.
	for _, step := range []func(context.Context) error{c.itself, c.cni, c.claim, c.gateway, c.services, c.nic, c.port, c.settings, c.boot} {
		if err := step(ctx); err != nil {
			return err
		}
		c.host.Report.Continue()
	}
	if c.done == 0 {
		c.log.Infof("node %s: nothing of it is on this host", c.name())
	}
	return nil
}

func (c *cleaner) name() string { return strings.ToLower(c.Name) }

// did logs a change.
func (c *cleaner) did(format string, args ...any) {
	c.done++
	c.log.Infof(format, args...)
}

func (c *cleaner) apply(edits []files.Edit, err error) error {
	if err != nil {
		return err
	}
	for _, e := range edits {
		c.did("%v", e)
	}
	return files.Apply(edits)
}

// itself returns an error if this host is another node only: it has that node's management port.
func (c *cleaner) itself(ctx context.Context) error {
	all, err := c.host.Switch.Interfaces(ctx)
	if err != nil {
		return err
	}
	other := ""
	for _, i := range all {
		node, ok := strings.CutPrefix(i.ExternalIDs[names.IfaceID], names.ManagementPort(""))
		switch {
		case !ok || i.Bridge != names.IntegrationBridge || i.Type != "internal":
		case strings.EqualFold(node, c.name()):
			return nil
		default:
			other = node
		}
	}
	if other != "" {
		return fmt.Errorf("this host is node %s, not %s: give --cleanup-node=%[1]s", other, c.name())
	}
	return nil
}

// cni removes the CNI configuration and the plugin, of the present settings and as the role has recorded them.
func (c *cleaner) cni(context.Context) error {
	setup, _ := cnisetup.FindShim(c.host.Config) // good for removal without a plugin, too
	return c.apply(setup.RemoveRecorded(c.host.Switch.ExternalIDs()))
}

// cleanTimeout bounds a request to the API server.
const cleanTimeout = 10 * time.Second

// claim publishes that this host is no gateway any more. An API server that does not answer is no error: the Node may be
// gone.
func (c *cleaner) claim(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	if err := c.withdraw(ctx); err != nil {
		c.log.Warnf("others may go on sending to the gateway of Node %s: %v; set its annotation %s to %s, or delete the Node", c.name(), err, names.GatewayAnnotation, c.noGateway())
	}
	return nil
}

// noGateway is the annotation of a host that is no gateway. Without it the master would keep the gateway, as one of
// gateway-init.
func (c *cleaner) noGateway() string {
	return nodeclaim.Claim{}.Annotations(c.name())[names.GatewayAnnotation]
}

func (c *cleaner) withdraw(ctx context.Context) error {
	server, err := kube.Connect(c.host.Config, nil, Program)
	if err != nil {
		return err
	}
	cluster, err := kube.NewCluster(server, Program, nil)
	if err != nil {
		return err
	}
	defer cluster.Close()
	node, err := cluster.ReadNode(ctx, c.name())
	if err != nil || node == nil || node.Annotations[names.ChassisAnnotation] != c.host.Config.SystemID {
		return err // another host's claim stays
	}
	if now := node.Annotations[names.GatewayAnnotation]; now == "" || now == c.noGateway() {
		return nil
	}
	c.did("Node %s: set annotation %s=%s", node.Name, names.GatewayAnnotation, c.noGateway())
	return cluster.AnnotateNode(ctx, node.Name, string(node.UID), map[string]string{names.GatewayAnnotation: c.noGateway()})
}

// gateway disconnects the gateway, and gives a NIC of its own back.
func (c *cleaner) gateway(ctx context.Context) error {
	u, err := uplink.Find(ctx, c.host, c.name())
	if err != nil {
		return err
	}
	if u.Changed() {
		c.did("disconnect gateway %s", c.name())
	}
	return u.Disconnect(ctx)
}

// services removes the rules and routes of the gateway helper, and what it told OVN.
func (c *cleaner) services(ctx context.Context) error {
	helper := gateway.Helper{Options: gateway.Options{Flags: c.Flags, Node: c.name(), Log: c.Log}}
	return helper.Remove(ctx)
}

// nic moves NICs back that the role has moved to a bridge.
func (c *cleaner) nic(ctx context.Context) error {
	all, err := uplink.HostBridges(ctx, c.host.Switch, c.name())
	if err != nil {
		return err
	}
	move := nicbridge.Command{Settings: c.Flags, Watch: WatchCommand, Unwatched: true, Out: io.Discard, Err: &report.Lines{Line: func(text string) { c.log.Warn(text) }}, Advise: report.Advice(c.log)}
	for _, b := range all {
		if !b.Moved {
			continue
		}
		c.did("move the addresses and routes of bridge %s back to its NIC", b.Name)
		move.Names = []string{b.Name}
		if err := nicbridge.Move(ctx, nicbridge.ToNIC, move); err != nil {
			return err
		}
	}
	return nil
}

// port removes the guards of pods and the management port.
func (c *cleaner) port(ctx context.Context) error {
	d, err := overlaynode.Leave(ctx, c.host, c.name(), nil)
	if err != nil {
		return err
	}
	if d.Port != "" {
		c.did("delete management port %s", d.Port)
	}
	return d.Finish(ctx)
}

// settings gives ovn-controller its former settings.
func (c *cleaner) settings(ctx context.Context) error {
	controller := c.host.Switch.Controller()
	changed, err := controller.ForgetWait(ctx)
	if err != nil {
		return err
	}
	changes, err := controller.Own(ctx, nil)
	if err != nil {
		return err
	}
	more, err := controller.OwnTLS(ctx, nil)
	for _, text := range slices.Concat(changes, more) {
		c.did("%s", text)
	}
	if changed {
		c.done++
	}
	return err
}

// boot removes the role's own files.
func (c *cleaner) boot(context.Context) error {
	err := c.apply(files.Pending([]files.Edit{{Path: bootFile, Gone: true}}))
	if err != nil {
		return err
	}
	err = os.Remove(filepath.Dir(bootFile)) // others may have files there
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return fmt.Errorf("removing the directory of %s: %w", bootFile, err)
	}
	return nil
}
