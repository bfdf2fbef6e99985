package vswitch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// An InternalPort is a port with a network device made by Open vSwitch itself.
type InternalPort struct {
	Bridge, Name string
	// MAC is the device's MAC; empty lets Open vSwitch choose.
	MAC string
	// MTU in bytes; 0 lets Open vSwitch choose.
	MTU int
	// ExternalIDs of the Interface. Other keys are left as they are.
	ExternalIDs map[string]string
}

// EnsureInternalPort makes the port, and its bridge if missing, in one transaction, or corrects it. An existing
// bridge is used as it is. It then waits until the network device exists. changed reports whether the database
// changed.
func (s *Switch) EnsureInternalPort(ctx context.Context, p InternalPort) (changed bool, err error) {
	plan, cfg, err := s.converge(ctx, func(c client.Client) (plan, error) { return planInternalPort(ctx, c, p) })
	if err != nil {
		return false, fmt.Errorf("adding port %s to %s: %w", p.Name, p.Bridge, err)
	}
	if err = s.awaitDevice(ctx, cfg, p.Bridge, p.Name, nil); err != nil {
		return len(plan.ops) > 0, fmt.Errorf("waiting for network device %s: %w%s", p.Name, err, s.hint(ctx, err))
	}
	return len(plan.ops) > 0, nil
}

// PlanInternalPort lists the changes of EnsureInternalPort, one a line.
func (s *Switch) PlanInternalPort(ctx context.Context, p InternalPort) ([]string, error) {
	var lines []string
	err := s.read(ctx, func(c client.Client) error {
		plan, err := planInternalPort(ctx, c, p)
		lines = plan.lines
		return err
	})
	return lines, err
}

// hint names the usual cause of a timeout.
func (s *Switch) hint(ctx context.Context, err error) string {
	if ctx.Err() == nil || !errors.Is(err, context.Cause(ctx)) {
		return ""
	}
	return ": is ovs-vswitchd running?"
}

func planInternalPort(ctx context.Context, c client.Client, p InternalPort) (plan, error) {
	want := &vswitchdb.Interface{Name: p.Name, Type: "internal", ExternalIDs: p.ExternalIDs}
	if p.MAC != "" {
		want.MAC = &p.MAC
	}
	if p.MTU != 0 {
		want.MTURequest = &p.MTU
	}
	port, iface, err := findPort(ctx, c, p.Bridge, p.Name)
	if err != nil {
		return plan{}, err
	}
	var pl plan
	if port == nil {
		err = addPort(ctx, c, &pl, p.Bridge, newPort{iface: want})
		return pl, err
	}
	var fields []any
	if iface.Type != want.Type {
		pl.say("set Interface %s type=%s (was %q)", p.Name, want.Type, iface.Type)
		fields = append(fields, &want.Type)
	}
	if want.MAC != nil && (iface.MAC == nil || !strings.EqualFold(*iface.MAC, *want.MAC)) {
		pl.say("set Interface %s mac=%s (was %s)", p.Name, *want.MAC, text(iface.MAC))
		fields = append(fields, &want.MAC)
	}
	if want.MTURequest != nil && (iface.MTURequest == nil || *iface.MTURequest != *want.MTURequest) {
		pl.say("set Interface %s mtu_request=%d (was %s)", p.Name, *want.MTURequest, text(iface.MTURequest))
		fields = append(fields, &want.MTURequest)
	}
	want.UUID = iface.UUID
	if len(fields) > 0 {
		if err := pl.add(c.Where(want).Update(want, fields...)); err != nil {
			return pl, err
		}
	}
	err = setKeys(c, &pl, iface, p.ExternalIDs, nil)
	return pl, err
}

// text formats an optional value.
func text[T any](v *T) string {
	if v == nil {
		return "unset"
	}
	return fmt.Sprint(*v)
}

// setKeys sets the wanted keys of an interface's external_ids, and removes the keys in drop. It touches these keys
// only, because ovn-controller writes into the same column.
func setKeys(c client.Client, pl *plan, iface *vswitchdb.Interface, want map[string]string, drop []string) error {
	set := map[string]string{}
	var remove []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		old, had := iface.ExternalIDs[k]
		if had && old == want[k] {
			continue
		}
		set[k] = want[k]
		was := "unset"
		if had {
			remove = append(remove, k)
			was = old
		}
		pl.say("set Interface %s external_ids:%s=%s (was %s)", iface.Name, k, want[k], was)
	}
	for _, k := range drop {
		remove = append(remove, k)
		pl.say("remove Interface %s external_ids:%s (was %s)", iface.Name, k, iface.ExternalIDs[k])
	}
	var m []model.Mutation
	if len(remove) > 0 {
		m = append(m, model.Mutation{Field: &iface.ExternalIDs, Mutator: libovsdb.MutateOperationDelete, Value: remove})
	}
	if len(set) > 0 {
		m = append(m, model.Mutation{Field: &iface.ExternalIDs, Mutator: libovsdb.MutateOperationInsert, Value: set})
	}
	if len(m) == 0 {
		return nil
	}
	return pl.add(c.Where(iface).Mutate(iface, m...))
}

// findPort returns the port of a bridge and its interface, or nil. A port of the same name in another bridge is a
// conflict.
func findPort(ctx context.Context, c client.Client, bridge, name string) (*vswitchdb.Port, *vswitchdb.Interface, error) {
	port := &vswitchdb.Port{Name: name}
	if ok, err := get(ctx, c, port); !ok || err != nil {
		return nil, nil, err
	}
	br, err := bridgeOf(ctx, c, port.UUID)
	if err != nil {
		return nil, nil, err
	}
	if br == nil || br.Name != bridge {
		other := "no bridge"
		if br != nil {
			other = "bridge " + br.Name
		}
		return nil, nil, conflict("port %s belongs to %s already", name, other)
	}
	iface := &vswitchdb.Interface{Name: name}
	ok, err := get(ctx, c, iface)
	if err != nil {
		return nil, nil, err
	}
	if !ok || !slices.Equal(port.Interfaces, []string{iface.UUID}) {
		return nil, nil, conflict("port %s of bridge %s is a bond of other interfaces", name, bridge)
	}
	return port, iface, nil
}

// bridgeOf returns the bridge of a port, or nil.
func bridgeOf(ctx context.Context, c client.Client, port string) (*vswitchdb.Bridge, error) {
	var bridges []*vswitchdb.Bridge
	if err := list(ctx, c, &bridges); err != nil {
		return nil, err
	}
	for _, b := range bridges {
		if slices.Contains(b.Ports, port) {
			return b, nil
		}
	}
	return nil, nil
}

// A newPort is a port to insert, with its QoS row, if any.
type newPort struct {
	iface    *vswitchdb.Interface
	qos      *vswitchdb.QoS
	isolated bool // see planIsolation
}

// addPort plans a new port, and its bridge if missing.
func addPort(ctx context.Context, c client.Client, pl *plan, bridge string, n newPort) error {
	br := &vswitchdb.Bridge{Name: bridge}
	found, err := get(ctx, c, br)
	if err != nil {
		return err
	}
	if !found {
		pl.say("add bridge %s", bridge)
	}
	pl.say("add port %s to bridge %s", n.iface.Name, bridge)
	if found {
		return appendPort(c, pl, br, "new_", n)
	}
	port, err := insertPort(c, pl, "new_", n)
	if err != nil {
		return err
	}
	return addBridge(ctx, c, pl, bridge, port)
}

// appendPort inserts a port into an existing bridge.
func appendPort(c client.Client, pl *plan, br *vswitchdb.Bridge, prefix string, n newPort) error {
	port, err := insertPort(c, pl, prefix, n)
	if err != nil {
		return err
	}
	return pl.add(c.Where(br).Mutate(br, model.Mutation{Field: &br.Ports, Mutator: libovsdb.MutateOperationInsert, Value: []string{port}}))
}

// insertPort inserts a port under a name for use within the transaction, and returns the name.
func insertPort(c client.Client, pl *plan, prefix string, n newPort) (string, error) {
	port := &vswitchdb.Port{UUID: prefix + "port", Name: n.iface.Name, Interfaces: []string{prefix + "iface"}}
	if n.isolated {
		mode := vswitchdb.PortVLANModeTrunk
		port.VLANMode, port.Trunks = &mode, []int{isolatedVLAN}
	}
	if n.qos != nil {
		n.qos.UUID = prefix + "qos"
		port.QOS = &n.qos.UUID
		if err := pl.add(c.Create(n.qos)); err != nil {
			return "", err
		}
	}
	n.iface.UUID = prefix + "iface"
	if err := pl.add(c.Create(n.iface)); err != nil {
		return "", err
	}
	return port.UUID, pl.add(c.Create(port))
}

// addBridge inserts a bridge in the same way as ovn-controller (ovn-controller(8) and its create_br_int): without
// flows of its own when it has no controller.
func addBridge(ctx context.Context, c client.Client, pl *plan, name, port string) error {
	top, err := root(ctx, c)
	if err != nil {
		return err
	}
	local, err := insertPort(c, pl, "local_", newPort{iface: &vswitchdb.Interface{Name: name, Type: "internal"}})
	if err != nil {
		return err
	}
	secure := vswitchdb.BridgeFailModeSecure
	br := &vswitchdb.Bridge{
		UUID: "new_bridge", Name: name, Ports: []string{local, port}, FailMode: &secure,
		OtherConfig:  map[string]string{"disable-in-band": "true"},
		DatapathType: top.ExternalIDs["ovn-bridge-datapath-type"],
	}
	if err := pl.add(c.Create(br)); err != nil {
		return err
	}
	return pl.add(c.Where(top).Mutate(top, model.Mutation{Field: &top.Bridges, Mutator: libovsdb.MutateOperationInsert, Value: []string{br.UUID}}))
}

// userspace is the datapath type of bridges in user space.
const userspace = "netdev"

// DatapathType returns a bridge's datapath: "system" for the kernel's,
// "netdev" for the one in user space.
func (s *Switch) DatapathType(ctx context.Context, bridge string) (string, error) {
	br := &vswitchdb.Bridge{Name: bridge}
	err := s.read(ctx, func(c client.Client) error {
		ok, err := get(ctx, c, br)
		if err == nil && !ok {
			err = fmt.Errorf("there is no bridge %s", bridge)
		}
		return err
	})
	if err != nil || br.DatapathType != "" {
		return br.DatapathType, err
	}
	return "system", nil
}

// DeletePort takes a port out of a bridge, with its QoS row, and waits for ovs-vswitchd. A missing port is not an
// error.
func (s *Switch) DeletePort(ctx context.Context, bridge, name string) (changed bool, err error) {
	plan, cfg, err := s.converge(ctx, func(c client.Client) (plan, error) {
		port, _, err := findPort(ctx, c, bridge, name)
		if port == nil || err != nil {
			return plan{}, err
		}
		return planDelete(ctx, c, map[string]bool{name: true})
	})
	if err != nil || len(plan.ops) == 0 {
		return false, err
	}
	err = s.await(ctx, func(c client.Client) (bool, error) { return applied(ctx, c, cfg) })
	if err != nil {
		return true, fmt.Errorf("waiting until port %s is gone: %w%s", name, err, s.hint(ctx, err))
	}
	return true, nil
}

// planDelete plans to delete ports by their names, from any bridge, and their QoS rows, also those left behind by
// lost ports.
func planDelete(ctx context.Context, c client.Client, doomed map[string]bool) (plan, error) {
	var pl plan
	var ports []*vswitchdb.Port
	var bridges []*vswitchdb.Bridge
	var limits []*vswitchdb.QoS
	if err := errors.Join(list(ctx, c, &ports), list(ctx, c, &bridges), list(ctx, c, &limits)); err != nil {
		return pl, err
	}
	gone, alive := map[string]string{}, map[string]bool{}
	for _, p := range ports {
		if !doomed[p.Name] {
			alive[p.Name] = true
			continue
		}
		gone[p.UUID] = p.Name
		if p.QOS == nil {
			continue
		}
		// References are checked before unreferenced rows are collected, so the port must drop its reference to its
		// QoS row although it is deleted itself.
		p.QOS = nil
		if err := pl.add(c.Where(p).Update(p, &p.QOS)); err != nil {
			return pl, err
		}
	}
	for _, br := range bridges {
		var out []string
		for _, p := range br.Ports {
			if name, ok := gone[p]; ok {
				out = append(out, p)
				pl.say("delete port %s from bridge %s", name, br.Name)
			}
		}
		if len(out) == 0 {
			continue
		}
		if err := pl.add(c.Where(br).Mutate(br, model.Mutation{Field: &br.Ports, Mutator: libovsdb.MutateOperationDelete, Value: out})); err != nil {
			return pl, err
		}
	}
	for _, q := range limits {
		owner, ours := q.ExternalIDs[names.QoSPort]
		if !ours || alive[owner] {
			continue
		}
		pl.say("delete QoS of port %s", owner)
		if err := pl.add(c.Where(q).Delete()); err != nil {
			return pl, err
		}
	}
	return pl, nil
}
