// Package gateway is the node's side of Services: it handles connections from
// clients other than pods.
//
//	lib/kube ──Services──▶ engine ──lib/desired/nodeport──▶ lib/flowsync ──▶ ovs-ofctl: the shared bridge
//	                                          └─────────▶ lib/firewall: the host
//	                                                      health checks: HTTP
//
// All of it is computed by one goroutine, the engine's. Parts of the engine with a state of their own are packages below
// this one; package lib lists them.
package gateway

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/gateway/checks"
	"ovn-k8s/lib/gateway/declare"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/link/tracking"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
)

// Program is the helper's name in logs and API requests.
const Program = "ovn-k8s-gateway-helper"

// Options are the parameters of a helper.
type Options struct {
	// Flags are the settings of the command line: see settings.Flags.
	Flags map[string]string
	// Bridge and Interface are the bridge shared by the host and its gateway
	// router, and the NIC in it. Without them only the host's rules are reconciled.
	Bridge, Interface string
	// Node is this host's name in Kubernetes; "" means the node of the management
	// port, or else the host's own name.
	Node string
	// NodePortAddresses, unless empty, restrict the addresses with NodePorts.
	NodePortAddresses []netip.Prefix
	// Closed reports whether NodePorts, addresses of Services outside, and ports of health checks are closed on this host.
	// nil: they are open.
	Closed func(config.Config) bool
	// Log returns the log of a module. nil is silent.
	Log func(module string) *logrus.Entry
	// Informers shares them with other roles of the process, see kube.Share. nil: the helper has its own.
	Informers kube.Sharing
	// Status receives the present activity of the helper in one line. It may be nil.
	Status func(text string)
}

// A Helper serves one node. The zero value reconciles the rules of the host.
type Helper struct {
	Options
	engine atomic.Pointer[engine]
	adopts bool // it serves the bridge that is shared, since no option names one
	idle   declare.Idle
	limits *tracking.Limits // of connection tracking
}

// closed is Closed for the present settings.
func (h *Helper) closed(c config.Config) bool { return h.Closed != nil && h.Closed(c) }

func (h *Helper) log(module string) *logrus.Entry { return settings.Log(h.Log, module) }

// Run serves the node until ctx ends. It calls ready once the bridge has the flows
// that do not depend on Services, or cannot get them, so that the gateway is declared
// down, or when it begins to wait for Open vSwitch or the bridge. It follows changes of settings in the local Open vSwitch. Once ready, no error
// ends it: it continues with the former settings, or tries again. Without root's rights it does not start.
func (h *Helper) Run(ctx context.Context, ready func()) error {
	if err := link.NeedRoot(); err != nil {
		return err
	}
	return h.runtime().Run(ctx, ready, h.Role())
}

// Role is the helper as a role of a process that may have others.
func (h *Helper) Role() settings.Role {
	return settings.Role{Log: h.log("gateway"), Reader: config.Helper, NeedsSwitch: true, Check: needs, Serve: h.serve, Beside: h.followPluginToken}
}

func (h *Helper) runtime() settings.Runtime {
	return settings.Runtime{Flags: h.Flags, Log: h.log, States: settings.NewStates(h.Status)}
}

// needs returns an error about missing settings.
func needs(cfg config.Config) error {
	if cfg.APIServer == "" {
		return config.ErrNoAPIServer
	}
	return nil
}

// followPluginToken logs when the CNI plugin's token is about to expire: the plugin itself runs for moments only.
func (h *Helper) followPluginToken(ctx context.Context, sw *vswitch.Switch) {
	changed := make(chan struct{}, 1)
	sw.OnExternalIDs(func(map[string]string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	settings.FollowToken(ctx, func() (settings.Token, bool) {
		own, _ := settings.Load(ctx, h.Flags, sw) // Run reports the error
		c, _ := settings.Load(ctx, nil, sw)
		t, ok := settings.ReadToken(c)
		return t, ok && (own.APIToken != c.APIToken || own.APITokenFile != c.APITokenFile)
	}, changed, func(text string) { h.log("gateway").Warnf("CNI plugin of this host: %s", text) })
}

// ShowConfig prints every setting with its value and source.
func (h *Helper) ShowConfig(ctx context.Context, out io.Writer) error {
	sw, err := h.runtime().ConnectSwitch(ctx)
	if err != nil {
		return err
	}
	defer sw.Close()
	return h.runtime().ShowConfig(ctx, out, sw)
}

// serve runs with one configuration until ctx ends.
func (h *Helper) serve(ctx context.Context, s settings.Session, ready func()) error {
	cfg, sw, commands, idle := s.Config, s.Switch, &h.engine, &h.idle
	h.limits = cmp.Or(h.limits, &tracking.Limits{})
	h = &Helper{Options: h.Options, adopts: h.Bridge == "", limits: h.limits}
	nic := h.Interface // begin replaces it by the kernel's name
	cluster, err := h.begin(ctx, s)
	if err != nil {
		idle.Log = h.log("gateway")
		idle.Failed(ctx, sw, cfg.RunDir, cmp.Or(h.Interface, nic), err)
		return err
	}
	defer cluster.Close()
	*idle = declare.Idle{}
	e := newEngine(h, cfg, sw)
	e.objects.Waits = s.Wait
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.restart = func() { cancel(settings.ErrChanged) }
	commands.Store(e)
	defer commands.Store(nil)
	if err := e.run(ctx, cluster, ready); context.Cause(ctx) != settings.ErrChanged {
		return err
	}
	return settings.ErrChanged
}

// begin prepares the shared bridge, if there is one, and for the API server.
func (h *Helper) begin(ctx context.Context, s settings.Session) (*kube.Cluster, error) {
	if err := h.adoptBridge(ctx, s.Switch); err != nil {
		return nil, err
	}
	if h.Bridge != "" {
		if err := h.checkBridge(ctx, s.Switch); err != nil {
			return nil, err
		}
		if err := checks.SwitchOffloadsOff(ctx, s.Switch, h.Bridge, h.Interface); err != nil {
			h.log("gateway").Warnf("large packets from %s may be dropped: %v", h.Interface, err)
		}
	}
	h.leaveBridges(ctx, s.Config.RunDir, s.Switch)
	return h.connect(s)
}

// connect prepares for the API server.
func (h *Helper) connect(s settings.Session) (*kube.Cluster, error) {
	server, err := kube.Connect(s.Config, s.Token, Program)
	if err != nil {
		return nil, settings.Wrong(err)
	}
	return kube.NewCluster(server, Program, h.Informers)
}

// adoptBridge serves the bridge shared by gateway-init, and the NIC in it, if the
// command line does not name one.
func (h *Helper) adoptBridge(ctx context.Context, sw *vswitch.Switch) error {
	if h.Bridge != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	all, err := sw.Interfaces(ctx)
	if err != nil {
		return err
	}
	bridge, nics := declare.SharedBridge(all)
	switch {
	case bridge == "":
	case len(nics) == 1:
		h.Bridge, h.Interface = bridge, nics[0]
		h.log("gateway").Infof("bridge %s: shared with a gateway, served without --physical-bridge; its NIC is %s", bridge, nics[0])
	default:
		h.log("gateway").Errorf("bridge %s: shared with a gateway, but not served, half of the connections of pods fail; NICs in it: %q; start this program with --physical-bridge=%s and --physical-interface", bridge, nics, bridge)
	}
	return nil
}

// patchTimeout bounds the time for which a start waits for ovs-vswitchd.
const patchTimeout = 10 * time.Second

// checkBridge checks the prerequisites of a shared bridge, and connects it with br-int.
// Scripts may match the texts, since they are the original's.
func (h *Helper) checkBridge(ctx context.Context, sw *vswitch.Switch) error {
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	var err error
	if h.Interface, err = link.KernelName(h.Interface); err != nil {
		return err
	}
	all, err := sw.Interfaces(ctx)
	if err != nil {
		return err
	}
	f := findPorts(all, h.Bridge, h.Interface)
	switch {
	case !f.bridge:
		return fmt.Errorf("physical bridge %s does not exist", h.Bridge)
	case f.nic.Name == "":
		//lint:ignore ST1005 scripts may match it
		return fmt.Errorf("Failed operation. (no row %q in table Interface)", h.Interface)
	case f.nic.Bridge != h.Bridge:
		return fmt.Errorf("physical-interface %s is no port of %s, but of %q: run \"ovs-vsctl add-port %s %s\"", h.Interface, h.Bridge, f.nic.Bridge, h.Bridge, h.Interface)
	case f.nic.Ofport <= 0:
		return fmt.Errorf("physical-interface %s is invalid%s", h.Interface, complaint(f.nic))
	}
	if err := sw.EnsurePatch(ctx, h.Bridge); err != nil {
		return err
	}
	if all, err = sw.Interfaces(ctx); err != nil {
		return err
	}
	if p := findPorts(all, h.Bridge, h.Interface).outside; p.Ofport <= 0 {
		return fmt.Errorf("patch port creation failed to provide a ofport%s", complaint(p))
	}
	return nil
}

// complaint returns the error of ovs-vswitchd about a port.
func complaint(i vswitch.Interface) string {
	if i.Error == "" {
		return ""
	}
	return ": " + i.Error
}

// ports are the ports relevant to a helper. Absent ones have no name.
type ports struct {
	bridge               bool
	mac                  string // of the bridge
	nic, outside, inside vswitch.Interface
	local                vswitch.Interface // in br-int, to a local gateway's host
	management           string            // the interface
	node                 string            // with this management port
	gateway              bool              // whether a gateway router has a NIC, its own or a shared one
	shared               string            // a bridge that gateway-init has connected with br-int
}

func findPorts(all []vswitch.Interface, bridge, nic string) ports {
	var p ports
	p.shared, _ = declare.SharedBridge(all)
	p.local, _ = declare.LocalPort(all)
	for _, i := range all {
		switch {
		case i.Name == bridge && i.Bridge == bridge && bridge != "":
			p.bridge, p.mac = true, i.MAC
		case i.Name == nic:
			p.nic = i
		case i.Name == names.PatchToIntegration(bridge) && i.Bridge == bridge:
			p.outside = i
		case i.Name == names.PatchFromIntegration(bridge) && i.Bridge == names.IntegrationBridge:
			p.inside = i
		}
		if i.Bridge == names.IntegrationBridge && i.ExternalIDs[names.GatewayTag] != "" && i.Name != names.PatchFromIntegration(names.LocalBridge) {
			p.gateway = true
		}
		// Pods' logical ports have an underscore in their names.
		if node, ok := strings.CutPrefix(i.ExternalIDs[names.IfaceID], names.ManagementPort("")); ok && i.Bridge == names.IntegrationBridge && !strings.Contains(node, "_") {
			p.management, p.node = i.Name, node
		}
	}
	return p
}

// pods returns the cluster's subnets as gateway-init knew them, or else those of the
// configuration, or else as minion-init knew them: of the destinations that the host
// routes to its management port, those with pods of its own. A local gateway routes
// packets to pods by the host.
func (p ports) pods(configured, routed, own []netip.Prefix) []netip.Prefix {
	made, err := ipnet.ParseDisjoint(p.inside.ExternalIDs[names.ClusterSubnets], 0)
	switch {
	case err == nil:
		return made
	case len(configured) > 0 || p.local.Name != "":
		return configured
	}
	return slices.DeleteFunc(slices.Clone(routed), func(r netip.Prefix) bool { return !slices.ContainsFunc(own, r.Overlaps) })
}

// router returns those addresses of a bridge that the gateway router has, too: all,
// unless gateway-init has recorded them.
func (p ports) router(addrs []netip.Addr) []netip.Addr {
	text := p.inside.ExternalIDs[names.GatewayIPs]
	if text == "" {
		return addrs
	}
	has := strings.Split(text, ",")
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool {
		return !slices.ContainsFunc(has, func(ip string) bool { return strings.HasPrefix(ip, a.String()+"/") })
	})
}

// nodeName returns this host's name in Kubernetes.
func (h *Helper) nodeName(p ports) string {
	if h.Node != "" {
		return h.Node
	}
	if p.node != "" {
		return p.node
	}
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(host)
}
