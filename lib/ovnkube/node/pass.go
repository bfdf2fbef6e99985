package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/desired/nodeclaim"
	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nicbridge/lease"
	overlayhost "ovn-k8s/lib/overlay/host"
	overlaynode "ovn-k8s/lib/overlay/node"
	"ovn-k8s/lib/overlay/progress"
	"ovn-k8s/lib/overlay/uplink"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// An input is what a pass takes from the engine.
type input struct {
	node     *corev1.Node
	listed   bool   // the API server has answered
	lost     error  // why it does not answer now; nil: it does, or has not been asked
	serving  bool   // the CNI server is ready
	unserved *error // why the CNI server has failed; nil: it has not
}

// unlisted is the reason to wait for the API server.
func (in input) unlisted() error {
	return waiting(cmp.Or(kube.Waiting(in.lost), "the API server has not answered yet"))
}

// A waiting is the reason why a pass ended early, if somebody else has to act. It is no failure: an event continues.
type waiting string

func (w waiting) Error() string { return "waiting: " + string(w) }

// A pass brings the host to the desired state. It keeps what was done or said before.
type pass struct {
	*engine
	guarded  bool            // see overlaynode.Parts: then the gateway helper keeps the guards
	warned   map[string]bool // warnings that were logged
	told     map[string]bool // texts of written Events
	last     error           // the result of the last pass
	reported string          // the result as reported
	failing  map[string]bool // changes that failed last
	mover    mover
	bridges  []uplink.HostBridge
	leases   lease.Leases    // of these bridges
	formers  []uplink.Former // NICs of the gateway, with what the host had on them
	enabled  bool            // the CNI configuration was written, or found
	claimed  bool            // the Node has had the claim of this host
	alone    bool            // no other host has the names of this one, see unique
	found    *[]string       // of a check: it changes nothing and writes no Event; nil: the pass works

	published struct { // last, when the Node was this
		node   *corev1.Node
		values map[string]string
	}
}

// run is one pass.
func (p *pass) run(ctx context.Context, in input) error {
	if err := p.unique(ctx, in); err != nil {
		return err
	}
	h := p.host()
	known, err := p.recorded(ctx)
	if err != nil {
		return err
	}
	if err := h.CheckDatapath(ctx, len(known) > 0); err != nil {
		return err
	}
	if err := p.fits(ctx, h, in); err != nil {
		return err
	}
	if h.Config.EncapIP, err = p.configure(ctx, in.node); err != nil {
		return err
	}
	if err := p.returnNIC(ctx); err != nil {
		return err
	}
	subnets, err := p.subnets(ctx, h, in)
	if err != nil {
		if failed := p.publish(ctx, in.node, nil); failed != nil {
			return failed
		}
		return err
	}
	if err := p.port(ctx, h, subnets); err != nil {
		return err
	}
	gateway, err := p.gateway(ctx, h, in.node, subnets)
	if err != nil {
		return err
	}
	claim := nodeclaim.Claim{Chassis: h.Config.SystemID, Gateway: gateway}
	if err := p.publish(ctx, in.node, &claim); err != nil {
		return err
	}
	if err := (runtimes{p}).enable(in); err != nil {
		return err
	}
	if err := (runtimes{p}).removeFormer(ctx, h); err != nil || !kube.Refuses(in.lost) {
		return err
	}
	return in.unlisted() // an operator has to act, though the host is complete
}

// host returns the host with its configuration, for the plans of lib/overlay.
func (p *pass) host() *overlayhost.Host {
	c := p.session.Config
	return &overlayhost.Host{Config: c, Switch: p.sw, RunDir: c.RunDir, Report: progress.Log(p.warn)}
}

// warn logs a warning once.
func (p *pass) warn(text string) {
	if p.warned[text] {
		return
	}
	p.warned[text] = true
	if p.found != nil {
		*p.found = append(*p.found, "! "+text)
		return
	}
	p.log.Warn(text)
}

// tell writes an Event about the Node, once.
func (p *pass) tell(reason, text string) {
	if p.found != nil || p.told[text] {
		return
	}
	p.told[text] = true
	p.cluster.Warn(kube.Node(p.name()), reason, text)
}

// apply logs changes and makes them. Changes that fail are logged once. A check lists them.
func (p *pass) apply(changes []string, do func() error) error {
	if len(changes) == 0 {
		return nil
	}
	if p.found != nil {
		for _, l := range changes {
			*p.found = append(*p.found, "~ "+l)
		}
		return nil
	}
	for _, l := range changes {
		if !p.failing[l] {
			p.log.Info(l)
		}
	}
	err := do()
	for _, l := range changes {
		delete(p.failing, l)
		if err != nil {
			p.failing[l] = true
		}
	}
	return err
}

// ranges are the subnets of the cluster.
func (p *pass) ranges() (all []netip.Prefix) {
	for _, r := range p.options.ClusterSubnets {
		all = append(all, r.CIDR)
	}
	return all
}

// subnets returns the node's subnets: those in the Node's annotations, or those of the host's management port, as long as
// the Node is unknown or pods need them.
func (p *pass) subnets(ctx context.Context, h *overlayhost.Host, in input) ([]netip.Prefix, error) {
	before, err := p.recorded(ctx)
	if err != nil {
		return nil, err
	}
	now, err := p.assigned(in)
	if err != nil && len(before) == 0 {
		return nil, err
	}
	if err != nil && !in.listed {
		return before, nil
	}
	if err != nil {
		p.warn(fmt.Sprintf("%v; this host keeps its subnets %s", err, ipnet.Join(before)))
		return before, nil
	}
	if len(before) == 0 || slices.Equal(before, now) {
		p.followPod.Store(false)
		return now, nil
	}
	return p.change(ctx, h, before, now)
}

// change returns the new subnets, or the former ones if running pods have addresses outside of the new ones.
func (p *pass) change(ctx context.Context, h *overlayhost.Host, before, now []netip.Prefix) ([]netip.Prefix, error) {
	plugged, err := overlaynode.Plugged(ctx, h)
	if err != nil {
		return nil, err
	}
	var lost []string
	for port, ips := range plugged {
		outside := func(a netip.Addr) bool { return !ipnet.Within([]netip.Prefix{ipnet.Single(a)}, now) }
		if slices.ContainsFunc(ips, outside) {
			lost = append(lost, port)
		}
	}
	p.followPod.Store(len(lost) > 0)
	if len(lost) == 0 {
		return now, nil
	}
	slices.Sort(lost)
	text := fmt.Sprintf("the Node has other subnets now, %s, but %d running pods have addresses of %s, such as %s: drain the node; until then this host stays as it is",
		ipnet.Join(now), len(lost), ipnet.Join(before), lost[0])
	p.tell("SubnetInUse", text)
	p.warn(text)
	return before, nil
}

// assigned returns the subnets in the annotations of the Node.
func (p *pass) assigned(in input) ([]netip.Prefix, error) {
	switch {
	case !in.listed:
		return nil, in.unlisted()
	case in.node == nil:
		return nil, waiting(fmt.Sprintf("there is no Node %s: does the kubelet run, with this name?", p.name()))
	}
	if p.Name != p.name() {
		text := fmt.Sprintf("Node %s: this host was told --init-node=%s, and names of Nodes have no capitals; give --init-node=%s", p.name(), p.Name, p.name())
		p.tell("OtherCapitals", text)
		p.warn(text)
	}
	subnets, err := nodesubnet.ParseAnnotations(in.node.Annotations)
	switch {
	case err != nil:
		return nil, waiting(fmt.Sprintf("Node %s: %v: a master replaces it", p.name(), err))
	case len(subnets) == 0:
		return nil, waiting(fmt.Sprintf("Node %s has no annotation %s: a master gives it its subnets; does one run, and has --cluster-subnets room?", p.name(), names.SubnetsAnnotation))
	case !ipnet.Within(subnets, p.ranges()):
		return nil, waiting(fmt.Sprintf("Node %s has subnets %s, and --cluster-subnets are %s: give this host the same --cluster-subnets as the master",
			p.name(), ipnet.Join(subnets), ipnet.Join(p.ranges())))
	}
	return subnets, nil
}

// recorded returns the subnets with which this host has been the node, none if it has not.
func (p *pass) recorded(ctx context.Context) ([]netip.Prefix, error) {
	ports, err := p.ports(ctx)
	for _, i := range ports {
		text, _, _ := strings.Cut(i.ExternalIDs[names.NodeSubnets], " in ")
		subnets, bad := ipnet.ParseSubnets(text, topology.MinHosts)
		if bad == nil && ipnet.Within(subnets, p.ranges()) { // else the annotation replaces it
			return subnets, err
		}
	}
	return nil, err
}

// ports returns the management ports of the node: one, or none on a new host.
func (p *pass) ports(ctx context.Context) (own []vswitch.Interface, err error) {
	all, err := p.sw.Interfaces(ctx)
	for _, i := range all {
		if i.Bridge == names.IntegrationBridge && i.ExternalIDs[names.IfaceID] == names.ManagementPort(p.name()) {
			own = append(own, i)
		}
	}
	return own, err
}

// fits is an error if a new host cannot have the Node's subnets, as with a route of its own in the way: then nothing is
// changed. A host with the management port goes on, and meets the error there: it needs its databases and its NIC.
func (p *pass) fits(ctx context.Context, h *overlayhost.Host, in input) error {
	if ports, err := p.ports(ctx); err != nil || len(ports) > 0 {
		return err
	}
	subnets, unknown := p.assigned(in)
	if unknown != nil {
		return nil // until subnets are known
	}
	_, err := p.plan(ctx, h, subnets, overlaynode.Parts{})
	return err
}

// port brings the management port to the desired state.
func (p *pass) port(ctx context.Context, h *overlayhost.Host, subnets []netip.Prefix) error {
	plan, err := p.plan(ctx, h, subnets, overlaynode.Parts{Guards: !p.guarded})
	if err != nil {
		return err
	}
	err = p.apply(plan.Changes(), func() error { return plan.Ensure(ctx) })
	p.guarded = err == nil
	return err
}

// plan computes the management port with subnets.
func (p *pass) plan(ctx context.Context, h *overlayhost.Host, subnets []netip.Prefix, parts overlaynode.Parts) (*overlaynode.Plan, error) {
	n := membership.Node{Name: p.name(), Pods: subnets, SystemID: h.Config.SystemID}
	n.Subnets = p.ranges()
	plan, err := overlaynode.New(ctx, h, n, parts)
	if err == nil {
		err = plan.Complete(ctx, h.Config.GivenJoin())
	}
	h.Report.Continue()
	return plan, err
}

// publish writes the claim into annotations of the Node, if they differ. A nil claim is that of a host whose gateway is not
// decided: its annotation stays.
func (p *pass) publish(ctx context.Context, node *corev1.Node, claim *nodeclaim.Claim) error {
	if node == nil {
		return nil
	}
	want := map[string]string{names.ChassisAnnotation: p.session.Config.SystemID}
	if claim != nil {
		want = claim.Annotations(p.name())
	}
	if want[names.ChassisAnnotation] == "" {
		return errors.New("no system-id: set external_ids:system-id of Open_vSwitch, to a name that no other host has")
	}
	if err := (rivals{p}).claim(node.Annotations[names.ChassisAnnotation], want[names.ChassisAnnotation]); err != nil {
		return err
	}
	for key, value := range want {
		if node.Annotations[key] == value {
			delete(want, key)
		}
	}
	if len(want) == 0 || p.published.node == node && maps.Equal(want, p.published.values) { // or an event follows
		return nil
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(want)) {
		lines = append(lines, fmt.Sprintf("Node %s: set annotation %s=%s (was %q)", node.Name, key, want[key], node.Annotations[key]))
	}
	return p.apply(lines, func() error {
		p.claimed = true
		if err := p.cluster.AnnotateNode(ctx, node.Name, string(node.UID), want); err != nil {
			return err
		}
		p.published.node, p.published.values = node, want
		return nil
	})
}
