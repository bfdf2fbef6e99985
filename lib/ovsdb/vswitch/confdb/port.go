package confdb

import (
	"context"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// A NewPort is a port to insert, with its QoS row, if any.
type NewPort struct {
	Iface    *vswitchdb.Interface
	Like     vswitchdb.Port // has further columns
	QoS      *vswitchdb.QoS
	Isolated bool // see Isolate
}

// AddPort plans a new port, and its bridge if missing.
func AddPort(ctx context.Context, c client.Client, pl *Plan, bridge string, n NewPort) error {
	br := &vswitchdb.Bridge{Name: bridge}
	found, err := Get(ctx, c, br)
	if err != nil {
		return err
	}
	if !found {
		pl.Say("add bridge %s", bridge)
	}
	pl.Say("add port %s to bridge %s", n.Iface.Name, bridge)
	if found {
		return AppendPort(c, pl, br, "new_", n)
	}
	port, err := InsertPort(c, pl, "new_", n)
	if err != nil {
		return err
	}
	return addBridge(ctx, c, pl, bridge, port)
}

// AppendPort inserts a port into an existing bridge.
func AppendPort(c client.Client, pl *Plan, br *vswitchdb.Bridge, prefix string, n NewPort) error {
	port, err := InsertPort(c, pl, prefix, n)
	if err != nil {
		return err
	}
	return pl.Add(c.Where(br).Mutate(br, model.Mutation{Field: &br.Ports, Mutator: libovsdb.MutateOperationInsert, Value: []string{port}}))
}

// InsertPort inserts a port under a name for use within the transaction, and returns the name.
func InsertPort(c client.Client, pl *Plan, prefix string, n NewPort) (string, error) {
	port := &n.Like
	port.UUID, port.Name, port.Interfaces = prefix+"port", n.Iface.Name, []string{prefix + "iface"}
	if n.Isolated {
		mode := vswitchdb.PortVLANModeTrunk
		port.VLANMode, port.Trunks = &mode, []int{isolatedVLAN}
	}
	if n.QoS != nil {
		n.QoS.UUID = prefix + "qos"
		port.QOS = &n.QoS.UUID
		if err := pl.Add(c.Create(n.QoS)); err != nil {
			return "", err
		}
	}
	n.Iface.UUID = prefix + "iface"
	if err := pl.Add(c.Create(n.Iface)); err != nil {
		return "", err
	}
	return port.UUID, pl.Add(c.Create(port))
}

// addBridge inserts a bridge in the same way as ovn-controller (ovn-controller(8) and its create_br_int): without
// flows of its own when it has no controller.
func addBridge(ctx context.Context, c client.Client, pl *Plan, name, port string) error {
	top, err := Root(ctx, c)
	if err != nil {
		return err
	}
	local, err := InsertPort(c, pl, "local_", NewPort{Iface: &vswitchdb.Interface{Name: name, Type: "internal"}})
	if err != nil {
		return err
	}
	secure := vswitchdb.BridgeFailModeSecure
	br := &vswitchdb.Bridge{
		UUID: "new_bridge", Name: name, Ports: []string{local, port}, FailMode: &secure,
		OtherConfig:  map[string]string{"disable-in-band": "true"},
		DatapathType: top.ExternalIDs["ovn-bridge-datapath-type"],
	}
	if err := pl.Add(c.Create(br)); err != nil {
		return err
	}
	return pl.Add(c.Where(top).Mutate(top, model.Mutation{Field: &top.Bridges, Mutator: libovsdb.MutateOperationInsert, Value: []string{br.UUID}}))
}

// isolatedVLAN is the only VLAN trunked by the patch port of a shared bridge. IEEE 802.1Q reserves 4095, so no
// frame has it.
const isolatedVLAN = 4095

// Isolate keeps the action NORMAL from using a patch port. conf.db keeps the port while ovs-vswitchd
// restarts, but not the flows: without isolation the bridge learns the MAC shared by host and gateway router behind
// the patch port. Flows with the port as output ignore its VLANs.
func Isolate(c client.Client, pl *Plan, port *vswitchdb.Port) error {
	mode := vswitchdb.PortVLANModeTrunk
	if port.Tag == nil && port.VLANMode != nil && *port.VLANMode == mode && slices.Equal(port.Trunks, []int{isolatedVLAN}) {
		return nil
	}
	pl.Say("set Port %s vlan_mode=%s trunks=%d", port.Name, mode, isolatedVLAN)
	port.Tag, port.VLANMode, port.Trunks = nil, &mode, []int{isolatedVLAN}
	return pl.Add(c.Where(port).Update(port, &port.Tag, &port.VLANMode, &port.Trunks))
}

// SetKeys sets the wanted keys of an interface's external_ids, and removes the keys in drop. It touches these keys
// only, because ovn-controller writes into the same column.
func SetKeys(c client.Client, pl *Plan, iface *vswitchdb.Interface, want map[string]string, drop []string) error {
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
		pl.Say("set Interface %s external_ids:%s=%s (was %s)", iface.Name, k, want[k], was)
	}
	for _, k := range drop {
		remove = append(remove, k)
		pl.Say("remove Interface %s external_ids:%s (was %s)", iface.Name, k, iface.ExternalIDs[k])
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
	return pl.Add(c.Where(iface).Mutate(iface, m...))
}

// DeletePorts plans to delete ports by their names, from any bridge, and their QoS rows, also those left behind by
// lost ports.
func DeletePorts(c client.Client, doomed map[string]bool) (Plan, error) {
	var pl Plan
	limits, err := Rows[*vswitchdb.QoS](c, vswitchdb.QoSTable)
	limits = slices.DeleteFunc(limits, func(q *vswitchdb.QoS) bool {
		_, ours := q.ExternalIDs[names.QoSPort]
		return !ours
	})
	if err != nil || len(doomed) == 0 && len(limits) == 0 {
		return pl, err
	}
	ports, err := Rows[*vswitchdb.Port](c, vswitchdb.PortTable)
	if err != nil {
		return pl, err
	}
	bridges, err := Rows[*vswitchdb.Bridge](c, vswitchdb.BridgeTable)
	if err != nil {
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
		p := &vswitchdb.Port{UUID: p.UUID}
		if err := pl.Add(c.Where(p).Update(p, &p.QOS)); err != nil {
			return pl, err
		}
	}
	for _, br := range bridges {
		var out []string
		for _, p := range br.Ports {
			if name, ok := gone[p]; ok {
				out = append(out, p)
				pl.Say("delete port %s from bridge %s", name, br.Name)
			}
		}
		if len(out) == 0 {
			continue
		}
		br := &vswitchdb.Bridge{UUID: br.UUID}
		if err := pl.Add(c.Where(br).Mutate(br, model.Mutation{Field: &br.Ports, Mutator: libovsdb.MutateOperationDelete, Value: out})); err != nil {
			return pl, err
		}
	}
	for _, q := range limits {
		owner := q.ExternalIDs[names.QoSPort]
		if alive[owner] {
			continue
		}
		pl.Say("delete QoS of port %s", owner)
		if err := pl.Add(c.Where(&vswitchdb.QoS{UUID: q.UUID}).Delete()); err != nil {
			return pl, err
		}
	}
	return pl, nil
}
