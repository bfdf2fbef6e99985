package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/firewall"
	"ovn-k8s/lib/gateway/announce"
	"ovn-k8s/lib/gateway/checks"
	"ovn-k8s/lib/gateway/conflicts"
	"ovn-k8s/lib/gateway/connections"
	"ovn-k8s/lib/gateway/declare"
	"ovn-k8s/lib/gateway/healthcheck"
	"ovn-k8s/lib/gateway/localend"
	"ovn-k8s/lib/gateway/objects"
	"ovn-k8s/lib/gateway/ovnwait"
	"ovn-k8s/lib/gateway/routes"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/ofctl"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/reconcile"
)

// An event is a change for the engine's goroutine to record. It returns the parts
// touched.
type event func() []string

// An engine reconciles a node. All but send and the fields guarded by shared belongs
// to the goroutine of its loop.
type engine struct {
	helper    *Helper
	log       *logrus.Entry
	config    config.Config
	sw        *vswitch.Switch
	bridge    ofctl.Bridge
	loop      reconcile.Loop[event, string]
	objects   *objects.Objects
	frontends service.Lists
	outside   service.Outer
	flows     flows
	ports     ports
	addrs     map[string][]netip.Prefix       // by interface
	inside    []netip.Prefix                  // subnets and addresses routed to the management port
	hops      []netip.Addr                    // of default routes
	restart   func()                          // starts another engine
	gone      absence                         // of the gateway from the bridge
	firewall  map[string]*firewall.Firewall   // by part
	tables    map[netip.Addr]*nodeport.Tables // by family; belongs to sync's work
	health    *healthcheck.Servers
	proxy     *healthcheck.Proxy
	monitor   *declare.Monitor
	announce  *announce.Announcer
	foreign   *checks.Firewall  // of other programs
	lastErr   map[string]string // last error reported, by part
	ready     func()
	warnNode  func(reason, message string)
	conflicts *conflicts.Reporter
	stale     *connections.OVS
	tracked   map[netip.Addr]*connections.Host // by family; belongs to sync's work
	local     *localend.End
	routers   map[string]string // of gateways here: UUIDs of Datapath_Bindings, by name
	worked    time.Duration     // duration of the last call of sync with its work
	guarded   bool              // see guardFirst; belongs to sync's work
	warned    bool              // by warnClosed
	chosen    map[string]bool   // texts about the choice of packet filters that were logged; belongs to sync's work

	shared sync.Mutex // guards view
	view   view
}

// A view is the latest desired state, for commands to show.
type view struct {
	bridge   bridgeflows.Bridge
	known    bool // whether the bridge has its ports
	host     nodeport.Host
	services []*service.Resolved
	// frontends are the frontends of services; outside are those of services with any for clients outside.
	frontends, outside service.List
	pods               []hostport.Pod
	cidrs              servicecidr.Ranges // see objects.Ranges; nil: not known yet
	synced             bool               // whether all objects are known, see objects.Complete
}

// newFirewalls finds the packet filters of the kernel's families, by part.
func newFirewalls(setting string) map[string]*firewall.Firewall {
	families := []netip.Addr{nodeport.IPv4}
	if link.HasIPv6() {
		families = append(families, nodeport.IPv6)
	}
	out := map[string]*firewall.Firewall{}
	for i, f := range firewall.NewFamilies(setting, families...) {
		out[[]string{partRules4, partRules6}[i]] = f
	}
	return out
}

func newEngine(h *Helper, cfg config.Config, sw *vswitch.Switch) *engine {
	firewalls, proxy := newFirewalls(cfg.Firewall), &healthcheck.Proxy{}
	e := &engine{
		helper: h, log: h.log("gateway"), config: cfg, sw: sw,
		bridge:   ofctl.Bridge{RunDir: cfg.RunDir, Name: h.Bridge},
		firewall: firewalls, tables: map[netip.Addr]*nodeport.Tables{nodeport.IPv4: {}, nodeport.IPv6: {}}, health: healthcheck.New(h.log("health"), proxy), proxy: proxy, lastErr: map[string]string{}, routers: map[string]string{}, chosen: map[string]bool{},
		conflicts: conflicts.New(h.log("gateway")), warnNode: func(string, string) {},
	}
	e.monitor = declare.New(sw, e.log, e.gateways, func(f func()) {
		e.send(func() []string {
			f()
			return nil
		})
	})
	e.announce = announce.New(cfg, e.log, e.setDatapath)
	e.foreign = &checks.Firewall{Config: cfg, Switch: sw, Log: e.log, AcceptsInIPTables: func(ctx context.Context) []netip.Addr {
		return firewall.AcceptsInIPTables(ctx, slices.Collect(maps.Values(firewalls)))
	}}
	e.local = &localend.End{MTU: cfg.MTU, Log: e.log, MayHave: e.mayHaveLocal}
	for _, part := range slices.Sorted(maps.Keys(firewalls)) {
		e.local.Firewalls = append(e.local.Firewalls, firewalls[part])
	}
	e.tracked = map[netip.Addr]*connections.Host{}
	for part, f := range firewalls {
		e.tracked[f.Family()] = &connections.Host{Family: f.Family(), Log: e.log, Again: func() { e.touch(part) }}
	}
	e.stale = connections.New(cfg.RunDir, e.log, func() { e.touch(partStale) })
	e.objects = objects.New(objects.Parts{
		Services: partsOfServices(h.Bridge, firewalls), Routes: partRoutes, Unresolved: partServices,
		// Another state of the host than in the last view has touched all parts.
		Changed: func(was, now *service.Resolved) []string {
			return partsOfChange(e.all(), nodeport.ChangeOf(e.view.host, was, now))
		},
	}, cfg.ExternalIPs)
	e.loop = reconcile.Loop[event, string]{
		Record: func(ev event) []string { return ev() }, OnDirty: e.objects.Resolve,
		Compare: turn, Sync: e.sync, Synced: e.synced, MinInterval: e.rest, Resync: time.Minute, All: func() []string {
			e.flows.changed() // look again, even if nothing is known to have changed
			return e.all()
		},
	}
	return e
}

const (
	// restFactor is the ratio of the helper's pause to its last work, so that
	// permanent changes of endpoints do not cost a host a whole CPU.
	restFactor = 4
	// maxRest bounds the delay of a change by such a pause.
	maxRest = 200 * time.Millisecond
)

// rest is the MinInterval of the loop.
func (e *engine) rest(int) time.Duration { return min(restFactor*e.worked, maxRest) }

// send sends an event to the engine's goroutine. It does not block.
func (e *engine) send(ev event) { e.loop.Send(ev) }

// touch makes parts dirty.
func (e *engine) touch(parts ...string) { e.send(func() []string { return parts }) }

// run runs the engine until ctx ends. Flows and rules stay: they serve without it.
func (e *engine) run(ctx context.Context, cluster *kube.Cluster, ready func()) error {
	e.ready = sync.OnceFunc(ready)
	defer e.holdNAT()()
	e.conflicts.Warn = cluster.Warn
	e.warnNode = func(reason, message string) { cluster.Warn(kube.Node(e.objects.Node), reason, message) }
	var wg sync.WaitGroup
	defer wg.Wait()
	defer e.health.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Otherwise flows would be deleted for a moment, because their inputs are not known yet.
	all, err := e.look(ctx)
	if err != nil {
		return err
	}
	e.announce.Set(announce.Shared{Bridge: e.helper.Bridge, NIC: e.helper.Interface}.Uplinks(all))
	wg.Go(func() { e.announce.Run(ctx) })
	defer e.sw.OnChange(func() { e.touch(partPorts, partZones) })()
	if e.helper.Bridge != "" {
		wg.Go(func() {
			e.bridge.Follow(ctx, func() {
				e.flows.changed()
				e.touch(partFlows)
			})
		})
	}
	wg.Go(func() { e.monitor.Run(ctx) })
	wg.Go(func() { e.proxy.Run(ctx, e.config.Healthz, e.log) })
	wg.Go(func() { e.followAddresses(ctx) })
	wg.Go(func() { e.followLinks(ctx) })
	wg.Go(func() { ovnwait.New(e.sw, e.config.RunDir, e.log).Run(ctx) })
	node := e.objects.Node
	wg.Go(func() {
		checks.FollowKubeProxy(ctx, node, slices.Collect(maps.Values(e.firewall)), func(text string) {
			e.log.Warn(text)
			e.warnNode("KubeProxyFound", text)
		})
	})
	wg.Go(func() { e.followPacketFilter(ctx) })
	wg.Go(func() { e.followForwarding(ctx) })
	inputs := e.objects.Inputs()
	wg.Go(func() { e.objects.Follow(ctx, e.log, cluster, inputs, func(f func() []string) { e.send(f) }) })
	e.send(e.all)
	return e.loop.Run(ctx)
}

// look records the ports of this host, and returns all interfaces in Open vSwitch's database.
func (e *engine) look(ctx context.Context) ([]vswitch.Interface, error) {
	all, err := e.sw.Interfaces(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading Open vSwitch's database: %w", err)
	}
	e.ports = findPorts(all, e.helper.Bridge, e.helper.Interface)
	e.inside, e.hops, err = link.Routing(e.ports.management)
	e.objects.Node = e.helper.nodeName(e.ports)
	return all, err
}

// sync computes the desired state and returns the work to apply it: it is the Sync of
// the loop.
func (e *engine) sync(dirty []string) func(context.Context) map[string]error {
	began := time.Now()
	if slices.Equal(dirty, []string{partServices}) && len(e.objects.Services()) == len(e.view.services) {
		return func(context.Context) map[string]error { // OVN balances the changed Services: no part, and no command, shows them
			e.worked = 0
			return nil
		}
	}
	v := e.wanted()
	e.proxy.Need(proxyParts(e.firewall, v, e.ports.inside.Name != ""), e.objects.Leaving)
	var work []func(context.Context) error
	for _, part := range dirty {
		work = append(work, e.work(part, v))
	}
	return func(ctx context.Context) map[string]error {
		failed := map[string]error{}
		defer func() { e.worked = time.Since(began) }()
		for i, do := range work {
			tryBegan := time.Now()
			err := do(ctx)
			if err != nil {
				failed[dirty[i]] = err
			}
			if v.synced && !errors.Is(err, context.Canceled) {
				e.proxy.Tried(dirty[i], unserved(err))
			}
			e.send(func() []string {
				e.monitor.Tried(dirty[i], tryBegan, err)
				return nil
			})
		}
		return failed
	}
}

// unserved returns the error of a part, unless this host serves all other Services, or new connections of all.
func unserved(err error) error {
	if errors.Is(err, firewall.ErrRefused) || errors.Is(err, connections.ErrUnforgotten) {
		return nil
	}
	return err
}

// wanted collects the inputs of flows and rules.
func (e *engine) wanted() view {
	var all []netip.Addr
	for _, name := range slices.Sorted(maps.Keys(e.addrs)) {
		all = append(all, addrsOf(e.addrs[name])...)
	}
	h, own, shared := e.helper, subnetsOf(e.addrs[e.ports.management]), addrsOf(e.addrs[e.helper.Bridge])
	router := e.ports.router(shared)
	reported, _ := facts.Reported(e.objects.Reported)
	v := view{
		host: nodeport.Host{
			Node: h.nodeName(e.ports), Zone: e.objects.Zone, Addrs: all, Nodes: e.objects.Nodes, Reported: e.objects.Reported, Routed: e.config.ServiceCIDRs, Management: e.ports.management,
			Pods: own, NodePortAddresses: h.NodePortAddresses, Shared: h.Bridge, PodPorts: e.config.GatewayPorts, Servers: e.config.Servers(), Gateway: e.ports.gateway,
		},
		bridge: bridgeflows.Bridge{Zone: e.config.ConntrackZone, Addrs: shared, Router: router, NodePorts: h.served(bridgeflows.Served(shared, router, facts.Frontends(reported))), Pods: e.ports.pods(e.config.ClusterSubnets, e.inside, own)},
		pods:   e.objects.HostPods(), cidrs: e.objects.Ranges(slices.Concat(e.config.ClusterSubnets, e.config.JoinSubnets, own), e.config.Servers()), synced: e.objects.Complete() && e.addrs != nil,
	}
	v.host.Routed = e.objects.Routed(v.host.Routed, v.cidrs)
	network := e.network(v)
	e.objects.SetHosts(network.Hosts, own)
	v.services = e.objects.Services()
	v.frontends = e.frontends.Of(v.services, network)
	if h.closed(e.config) {
		e.warnClosed(v)
		v.frontends = v.frontends.Inside()
	}
	v.outside = e.outside.Of(v.frontends)
	e.shared.Lock()
	defer e.shared.Unlock()
	v.known = e.view.known
	v.bridge.Physical, v.bridge.Overlay, v.bridge.MAC = e.view.bridge.Physical, e.view.bridge.Overlay, e.view.bridge.MAC
	e.view = v
	return v
}

// warnClosed logs once that a Service wants clients outside, and this gateway is closed to them.
func (e *engine) warnClosed(v view) {
	gateway := v.host.Gateway || e.ports.local.Name != ""
	for f := range v.frontends.Outside() {
		if v.synced && gateway && !e.warned {
			e.warned = true
			e.log.Warnf("service %s: NodePorts and external addresses are closed on this host, for this service and all others; give --nodeport to open them", f.Key)
		}
		return
	}
}

// network returns the addresses at which no Service may have a frontend, as far as this host knows them. The host's
// routes by the management port are those to pods and Services.
func (e *engine) network(v view) service.Network {
	hosts := slices.Concat(slices.Collect(maps.Values(e.objects.Nodes))...)
	hosts = append(hosts, v.host.Addrs...)
	slices.SortFunc(hosts, netip.Addr.Compare)
	return service.Network{
		Ranges: v.host.Routed, Inside: slices.Concat(e.config.ClusterSubnets, e.config.JoinSubnets, v.host.Pods, e.inside),
		Hops: e.hops, Hosts: slices.Compact(hosts),
	}
}

func addrsOf(of []netip.Prefix) (out []netip.Addr) {
	for _, p := range of {
		out = append(out, p.Addr())
	}
	return out
}

func subnetsOf(of []netip.Prefix) (out []netip.Prefix) {
	for _, p := range of {
		out = append(out, p.Masked())
	}
	return out
}

// served leaves out addresses at which NodePorts are not served.
func (h *Helper) served(addrs []netip.Addr) []netip.Addr {
	if len(h.NodePortAddresses) == 0 {
		return addrs
	}
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool {
		return !slices.ContainsFunc(h.NodePortAddresses, func(p netip.Prefix) bool { return p.Contains(a) })
	})
}

// work returns the function to reconcile one part.
func (e *engine) work(part string, v view) func(context.Context) error {
	switch part {
	case partPorts:
		return e.readPorts
	case partZones:
		routers := slices.Concat(slices.Sorted(maps.Keys(e.routers)), slices.Sorted(maps.Values(e.routers)))
		return func(ctx context.Context) error { return e.expireSYNs(ctx, routers) }
	case partFlows:
		p := e.ports
		return func(ctx context.Context) error { return e.syncFlows(ctx, p, v) }
	case partRoutes:
		return func(context.Context) error { return routes.Sync(e.config, v.host, v.cidrs, e.log) }
	case partMTU:
		node := e.objects.Node
		return func(ctx context.Context) error { return checks.MTU{Config: e.config, Switch: e.sw}.Check(ctx, node) }
	case partLocal, partForwarding:
		links, err := localend.Links(e.ports.local.ExternalIDs, e.config)
		return func(ctx context.Context) error {
			switch {
			case err != nil:
				return err
			case part == partLocal:
				return e.local.Sync(ctx, links)
			}
			if err := e.guardFirst(ctx, v); err != nil {
				return err
			}
			return localend.EnsureForwarding(v.host.Pods, links, e.helper.limits, e.log)
		}
	case partFirewall:
		interfaces := e.ports.interfaces()
		return func(ctx context.Context) error { return e.foreign.Check(ctx, interfaces, v.host.Pods) }
	case partHealth:
		return func(context.Context) error {
			if !v.synced {
				return nil
			}
			services := v.services
			if e.helper.closed(e.config) {
				services = nil
			}
			busy := e.health.Serve(nodeport.HealthChecks(v.host.Node, services))
			return e.conflicts.HealthChecks(v.host.Node, services, busy)
		}
	case partStale:
		return func(ctx context.Context) error {
			if !v.synced {
				return nil
			}
			return e.stale.Forget(ctx, v.frontends)
		}
	case partConflicts:
		return func(context.Context) error {
			if !v.synced {
				return nil
			}
			e.conflicts.Servers(v.host, v.outside)
			return e.conflicts.NodePorts(v.host, v.outside)
		}
	case partServices:
		return func(context.Context) error { return nil }
	}
	return func(ctx context.Context) error { return e.syncRules(ctx, e.firewall[part], v) }
}

// synced logs each error once, though several parts may have it: it is the Synced of the loop.
func (e *engine) synced(tried []string, failed map[string]error) {
	logged := func(text string) bool { return slices.Contains(slices.Collect(maps.Values(e.lastErr)), text) }
	for _, part := range tried {
		err, last := failed[part], e.lastErr[part]
		switch {
		case err == nil && last != "":
			delete(e.lastErr, part)
			if !logged(last) {
				e.log.Infof("%s: recovered", part)
			}
		case err != nil && !errors.Is(err, context.Canceled) && last != reconcile.Reason(err):
			if !logged(reconcile.Reason(err)) {
				e.log.Warnf("%s: %v", part, err)
			}
			e.lastErr[part] = reconcile.Reason(err)
			if p := new(checks.Problem); errors.As(err, p) {
				e.warnNode(p.Reason, err.Error())
			}
		}
	}
	first := partFlows
	if e.helper.Bridge == "" {
		first = partPorts
	}
	if slices.Contains(tried, first) && (failed[first] == nil || e.failing(first)) {
		e.ready()
	}
}

// failing reports whether a part has failed for so long that gateways that need it are declared down.
func (e *engine) failing(part string) bool {
	return slices.ContainsFunc(e.loop.Status().Failed, func(f reconcile.Failed[string]) bool {
		return f.Key == part && time.Since(f.Since) >= declare.DownAfter
	})
}
