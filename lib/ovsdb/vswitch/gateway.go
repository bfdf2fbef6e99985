package vswitch

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// A GatewayPort connects the logical port of a gateway with the wire: by a NIC in br-int, or by a bridge connected
// with br-int by patch ports.
type GatewayPort struct {
	// Gateway is written into external_ids of all rows, to find them again.
	Gateway string
	IfaceID string // the logical port
	NIC     string
	Former  string // the NIC's former configuration: see Interface and names.FormerNIC
	Bridge  string // instead of NIC
	MAC     string // of the bridge; pinned unless it is already
	// Pods are the cluster's subnets, and IPs the gateway's addresses. The gateway helper needs them for the flows
	// of a shared bridge.
	Pods, IPs []netip.Prefix
	// NextHops are the next hops of the gateway's router, for the gateway helper.
	NextHops []netip.Addr
	// Own makes a bridge for this gateway only, deleted with it.
	Own bool
}

// A gatewayPlan is one of the consecutive transactions for a GatewayPort.
type gatewayPlan func(context.Context, client.Client, GatewayPort) (confdb.Plan, error)

func gatewayPlans() []gatewayPlan {
	return []gatewayPlan{planGatewayStale, planOwnBridge, planDeclared, planInside, planOutside, planPin}
}

// noGatewayPlans are the transactions that remove a gateway.
func noGatewayPlans() []gatewayPlan { return []gatewayPlan{planGatewayStale, planDeclared} }

// EnsureGatewayPort makes the port, or corrects it, and removes all other rows tagged with the gateway. It then
// waits for ovs-vswitchd.
func (s *Switch) EnsureGatewayPort(ctx context.Context, p GatewayPort) error {
	if err := s.runGatewayPlans(ctx, p, gatewayPlans()); err != nil {
		return fmt.Errorf("connecting gateway %s: %w", p.Gateway, err)
	}
	if p.NIC == "" {
		return nil
	}
	if err := s.AwaitDevice(ctx, 0, names.IntegrationBridge, p.NIC, nil); err != nil {
		return fmt.Errorf("waiting for network device %s: %w", p.NIC, err)
	}
	return nil
}

// RemoveGatewayPort removes all rows tagged with the gateway, and waits for ovs-vswitchd. If there are none, it is
// not an error.
func (s *Switch) RemoveGatewayPort(ctx context.Context, gateway string) error {
	if err := s.runGatewayPlans(ctx, GatewayPort{Gateway: gateway}, noGatewayPlans()); err != nil {
		return fmt.Errorf("disconnecting gateway %s: %w", gateway, err)
	}
	return nil
}

func (s *Switch) runGatewayPlans(ctx context.Context, p GatewayPort, plans []gatewayPlan) error {
	for _, build := range plans {
		cfg, err := s.Converge(ctx, func(c client.Client) (confdb.Plan, error) { return build(ctx, c, p) })
		if err != nil {
			return err
		}
		if err := s.awaitPlan(ctx, cfg); err != nil {
			return err
		}
	}
	return nil
}

// PlanGatewayPort lists the changes of EnsureGatewayPort, one a line; with only Gateway set, those of
// RemoveGatewayPort.
func (s *Switch) PlanGatewayPort(ctx context.Context, p GatewayPort) ([]string, error) {
	plans := gatewayPlans()
	if p.IfaceID == "" {
		plans = noGatewayPlans()
	}
	var lines []string
	err := s.Read(ctx, func(c client.Client) error {
		lines = nil
		for _, build := range plans {
			pl, err := build(ctx, c, p)
			if err != nil {
				return err
			}
			for _, l := range pl.Lines {
				if !slices.Contains(lines, l) { // two plans may need the same bridge
					lines = append(lines, l)
				}
			}
		}
		return nil
	})
	return lines, err
}

// inside is the port in br-int.
func (p GatewayPort) inside() *vswitchdb.Interface {
	ids := map[string]string{names.IfaceID: p.IfaceID, names.GatewayTag: p.Gateway}
	if len(p.Pods) > 0 {
		ids[names.ClusterSubnets] = ipnet.Join(p.Pods)
	}
	if len(p.IPs) > 0 {
		ids[names.GatewayIPs] = ipnet.Join(p.IPs)
	}
	if len(p.NextHops) > 0 {
		ids[names.NextHops] = ipnet.Join(p.NextHops)
	}
	if p.NIC == "" {
		return patchPort(names.PatchFromIntegration(p.Bridge), names.PatchToIntegration(p.Bridge), ids)
	}
	if p.Former != "" {
		ids[names.FormerNIC] = p.Former
	}
	return &vswitchdb.Interface{Name: p.NIC, ExternalIDs: ids}
}

// outside is the port in the bridge, or nil without a bridge.
func (p GatewayPort) outside() *vswitchdb.Interface {
	if p.Bridge == "" {
		return nil
	}
	return patchPort(names.PatchToIntegration(p.Bridge), names.PatchFromIntegration(p.Bridge), map[string]string{names.GatewayTag: p.Gateway})
}

func patchPort(name, peer string, ids map[string]string) *vswitchdb.Interface {
	return &vswitchdb.Interface{Name: name, Type: "patch", Options: map[string]string{"peer": peer}, ExternalIDs: ids}
}

func planInside(ctx context.Context, c client.Client, p GatewayPort) (confdb.Plan, error) {
	return planPort(ctx, c, names.IntegrationBridge, confdb.NewPort{Iface: p.inside()})
}

func planOutside(ctx context.Context, c client.Client, p GatewayPort) (confdb.Plan, error) {
	if p.Bridge == "" {
		return confdb.Plan{}, nil
	}
	return planPort(ctx, c, p.Bridge, confdb.NewPort{Iface: p.outside(), Isolated: !p.Own})
}

// planPort plans a port of a bridge. A port of another logical port is a conflict, unless it has our tag.
func planPort(ctx context.Context, c client.Client, bridge string, n confdb.NewPort) (confdb.Plan, error) {
	var pl confdb.Plan
	want := n.Iface
	port, iface, err := confdb.FindPort(ctx, c, bridge, want.Name)
	if err != nil {
		return pl, err
	}
	if port == nil {
		err = confdb.AddPort(ctx, c, &pl, bridge, n)
		return pl, err
	}
	id := iface.ExternalIDs[names.IfaceID]
	tag := iface.ExternalIDs[names.GatewayTag]
	if id != "" && id != want.ExternalIDs[names.IfaceID] && tag != want.ExternalIDs[names.GatewayTag] {
		if tag != "" {
			return pl, taken("port "+want.Name, tag)
		}
		return pl, confdb.Conflict("%s is a port of %s already, for logical port %s", want.Name, bridge, id)
	}
	if n.Isolated {
		if err := confdb.Isolate(c, &pl, port); err != nil {
			return pl, err
		}
	}
	want.UUID = iface.UUID
	var fields []any
	if iface.Type != want.Type {
		pl.Say("set Interface %s type=%s (was %q)", want.Name, want.Type, iface.Type)
		fields = append(fields, &want.Type)
	}
	if want.Options["peer"] != iface.Options["peer"] {
		pl.Say("set Interface %s options:peer=%s (was %s)", want.Name, want.Options["peer"], iface.Options["peer"])
		fields = append(fields, &want.Options)
	}
	if len(fields) > 0 {
		if err := pl.Add(c.Where(want).Update(want, fields...)); err != nil {
			return pl, err
		}
	}
	keys := want.ExternalIDs
	if iface.ExternalIDs[names.FormerNIC] != "" {
		delete(keys, names.FormerNIC) // the first record stays: since then the NIC has no configuration
	}
	err = confdb.SetKeys(c, &pl, iface, keys, nil)
	return pl, err
}

// taken is the error about something of another gateway of this host: of another name, or one in other capitals.
func taken(what, gateway string) error {
	return confdb.Conflict("%s is that of gateway %s on this host: spell the name like that, or run gateway-remove --node-name=%[2]s first", what, gateway)
}

// planOwnBridge makes a bridge of our own. It forwards like an ordinary switch, and has the datapath type of
// br-int, as patch ports require.
func planOwnBridge(ctx context.Context, c client.Client, p GatewayPort) (confdb.Plan, error) {
	var pl confdb.Plan
	if !p.Own {
		return pl, nil
	}
	top, err := confdb.Root(ctx, c)
	if err != nil {
		return pl, err
	}
	kind, integration := top.ExternalIDs["ovn-bridge-datapath-type"], &vswitchdb.Bridge{Name: names.IntegrationBridge}
	if ok, err := confdb.Get(ctx, c, integration); err != nil {
		return pl, err
	} else if ok {
		kind = integration.DatapathType
	}
	br := &vswitchdb.Bridge{Name: p.Bridge}
	if found, err := confdb.Get(ctx, c, br); err != nil || found {
		switch tag := br.ExternalIDs[names.GatewayTag]; {
		case err != nil:
		case tag != p.Gateway && tag != "":
			err = taken("bridge "+p.Bridge, tag)
		case tag != p.Gateway:
			err = confdb.Conflict("there is a bridge %s that is not ours: rename or delete it", p.Bridge)
		case br.DatapathType != kind:
			pl.Say("set Bridge %s datapath_type=%q (was %q)", br.Name, kind, br.DatapathType)
			br.DatapathType = kind
			err = pl.Add(c.Where(br).Update(br, &br.DatapathType))
		}
		return pl, err
	}
	pl.Say("add bridge %s", p.Bridge)
	local, err := confdb.InsertPort(c, &pl, "local_", confdb.NewPort{Iface: &vswitchdb.Interface{Name: p.Bridge, Type: "internal"}})
	if err != nil {
		return pl, err
	}
	standalone := vswitchdb.BridgeFailModeStandalone
	br = &vswitchdb.Bridge{
		UUID: "new_bridge", Name: p.Bridge, Ports: []string{local}, FailMode: &standalone, DatapathType: kind,
		ExternalIDs: map[string]string{names.GatewayTag: p.Gateway},
	}
	if err := pl.Add(c.Create(br)); err != nil {
		return pl, err
	}
	return pl, pl.Add(c.Where(top).Mutate(top, model.Mutation{Field: &top.Bridges, Mutator: libovsdb.MutateOperationInsert, Value: []string{br.UUID}}))
}

// planPin pins a shared bridge's MAC, because the gateway's router has the same MAC. Without a pin, a bridge takes
// the MAC of its lowest port.
func planPin(ctx context.Context, c client.Client, p GatewayPort) (confdb.Plan, error) {
	var pl confdb.Plan
	if p.Bridge == "" || p.Own {
		return pl, nil
	}
	br := &vswitchdb.Bridge{Name: p.Bridge}
	if ok, err := confdb.Get(ctx, c, br); err != nil || !ok || br.OtherConfig["hwaddr"] != "" {
		return pl, err
	}
	pl.Say("set Bridge %s other_config:hwaddr=%s (was unset)", p.Bridge, p.MAC)
	return pl, pl.Add(c.Where(br).Mutate(br,
		model.Mutation{Field: &br.OtherConfig, Mutator: libovsdb.MutateOperationInsert, Value: map[string]string{"hwaddr": p.MAC}},
		model.Mutation{Field: &br.ExternalIDs, Mutator: libovsdb.MutateOperationInsert, Value: map[string]string{names.PinnedBy: p.Gateway}}))
}

// planGatewayStale removes unwanted rows tagged with the gateway: ports, bridges of our own, and pinned MACs.
func planGatewayStale(ctx context.Context, c client.Client, p GatewayPort) (confdb.Plan, error) {
	keep := map[string]bool{}
	if p.IfaceID != "" {
		keep[p.inside().Name] = true
		if out := p.outside(); out != nil {
			keep[out.Name] = true
		}
	}
	var ifaces []*vswitchdb.Interface
	var bridges []*vswitchdb.Bridge
	if err := errors.Join(confdb.List(ctx, c, &ifaces), confdb.List(ctx, c, &bridges)); err != nil {
		return confdb.Plan{}, err
	}
	doomed := map[string]bool{}
	for _, i := range ifaces {
		if i.ExternalIDs[names.GatewayTag] == p.Gateway && !keep[i.Name] {
			doomed[i.Name] = true
		}
	}
	var pl confdb.Plan
	if len(doomed) > 0 {
		var err error
		if pl, err = confdb.DeletePorts(c, doomed); err != nil {
			return pl, err
		}
	}
	slices.SortFunc(bridges, func(a, b *vswitchdb.Bridge) int { return strings.Compare(a.Name, b.Name) })
	for _, br := range bridges {
		if err := releaseBridge(ctx, c, &pl, br, p); err != nil {
			return pl, err
		}
	}
	return pl, nil
}

// releaseBridge deletes a bridge of the gateway's own, or removes the MAC pinned for the gateway, unless want has
// this bridge.
func releaseBridge(ctx context.Context, c client.Client, pl *confdb.Plan, br *vswitchdb.Bridge, want GatewayPort) error {
	if br.Name == want.Bridge {
		return nil
	}
	if br.ExternalIDs[names.GatewayTag] == want.Gateway {
		pl.Say("delete bridge %s", br.Name)
		top, err := confdb.Root(ctx, c)
		if err != nil {
			return err
		}
		return pl.Add(c.Where(top).Mutate(top, model.Mutation{Field: &top.Bridges, Mutator: libovsdb.MutateOperationDelete, Value: []string{br.UUID}}))
	}
	if br.ExternalIDs[names.PinnedBy] != want.Gateway {
		return nil
	}
	pl.Say("remove Bridge %s other_config:hwaddr (was %s)", br.Name, br.OtherConfig["hwaddr"])
	return pl.Add(c.Where(br).Mutate(br,
		model.Mutation{Field: &br.OtherConfig, Mutator: libovsdb.MutateOperationDelete, Value: []string{"hwaddr"}},
		model.Mutation{Field: &br.ExternalIDs, Mutator: libovsdb.MutateOperationDelete, Value: []string{names.PinnedBy}}))
}
