package ovncontroller

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ovn-kubernetes/libovsdb/client"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

const (
	// synTimeout is the least timeout of conntrack, in seconds. Clients repeat a SYN after a second (RFC 6298, section 2).
	synTimeout = 1
	// zonePrefix begins the keys of br-int's external_ids in which ovn-controller keeps the numbers of zones.
	zonePrefix = "ct-zone-"
)

// ExpireSYNs has the userspace datapath forget unanswered SYNs after a second in the DNAT zones of some logical
// routers, and reports whether it changed something. Otherwise conntrack translates a repeated SYN before OVN's flows
// (process_one in lib/conntrack.c of Open vSwitch), OVN does not apply SNAT to it, and the endpoint sees a connection
// from two addresses. routers are names or UUIDs of Datapath_Bindings: ovn-controller names a zone by the UUID, from
// 23.09 on by the router's name. A timeout stays as long as its zone, and timeouts of others stay.
// With Open vSwitch from 3.3 on, call it again after each change of the database: see changePolicies.
func (s Settings) ExpireSYNs(ctx context.Context, routers []string) (bool, error) {
	cfg, err := s.DB.Converge(ctx, func(c client.Client) (pl confdb.Plan, err error) {
		err = expireSYNs(ctx, c, &pl, routers)
		return pl, err
	})
	if err != nil {
		return false, fmt.Errorf("setting timeouts of conntrack: %w", err)
	}
	return cfg > 0, nil
}

// expireSYNs plans ExpireSYNs.
func expireSYNs(ctx context.Context, c client.Client, pl *confdb.Plan, routers []string) error {
	d, err := readDatapath(ctx, c)
	if d == nil || err != nil {
		return err
	}
	stale, fresh := d.staleZones(), map[any]any{}
	for _, r := range routers {
		name := r + "_dnat"
		zone, err := strconv.Atoi(d.bridge.ExternalIDs[zonePrefix+name])
		if _, taken := d.row.CTZones[zone]; err != nil || taken && stale[zone] == nil {
			continue
		}
		fresh[zone] = insertZone(pl, name)
	}
	if len(stale)+len(fresh) > 0 {
		mutateRow(pl, vswitchdb.DatapathTable, d.row.UUID,
			libovsdb.NewMutation("ct_zones", libovsdb.MutateOperationDelete, libovsdb.OvsMap{GoMap: stale}),
			libovsdb.NewMutation("ct_zones", libovsdb.MutateOperationInsert, libovsdb.OvsMap{GoMap: fresh}))
	}
	return d.changePolicies(ctx, c, pl)
}

// A datapath is the userspace datapath with br-int and all rows of CT_Zone.
type datapath struct {
	root   *vswitchdb.OpenvSwitch
	row    *vswitchdb.Datapath
	bridge *vswitchdb.Bridge
	zones  []*vswitchdb.CTZone
}

// readDatapath returns nil without that datapath or br-int.
func readDatapath(ctx context.Context, c client.Client) (*datapath, error) {
	root, err := confdb.Root(ctx, c)
	if err != nil || root.Datapaths[names.UserspaceDatapath] == "" {
		return nil, err
	}
	d := datapath{root: root, row: &vswitchdb.Datapath{UUID: root.Datapaths[names.UserspaceDatapath]}, bridge: &vswitchdb.Bridge{Name: names.IntegrationBridge}}
	if ok, err := confdb.Get(ctx, c, d.row); !ok || err != nil {
		return nil, err
	}
	if ok, err := confdb.Get(ctx, c, d.bridge); !ok || err != nil {
		return nil, err
	}
	return &d, confdb.List(ctx, c, &d.zones)
}

// staleZones returns the entries of ours in ct_zones whose zones are no longer those of the same names.
func (d *datapath) staleZones() map[any]any {
	of := map[string]string{} // names, by row
	for _, row := range d.zones {
		of[row.UUID] = row.ExternalIDs[names.CTZone]
	}
	stale := map[any]any{}
	for zone, row := range d.row.CTZones {
		if name := of[row]; name != "" && d.bridge.ExternalIDs[zonePrefix+name] != strconv.Itoa(zone) {
			stale[zone] = libovsdb.UUID{GoUUID: row}
		}
	}
	return stale
}

// keptZones returns the rows of ours whose entries in ct_zones are not stale.
func (d *datapath) keptZones() (kept []*vswitchdb.CTZone) {
	for _, row := range d.zones {
		zone, err := strconv.Atoi(d.bridge.ExternalIDs[zonePrefix+row.ExternalIDs[names.CTZone]])
		if err == nil && d.row.CTZones[zone] == row.UUID {
			kept = append(kept, row)
		}
	}
	return kept
}

// insertZone inserts a row of CT_Zone with its timeouts for a zone, and returns the reference to it.
func insertZone(pl *confdb.Plan, name string) libovsdb.UUID {
	zone, policy := fmt.Sprintf("zone%d", len(pl.Ops)), fmt.Sprintf("policy%d", len(pl.Ops))
	pl.Ops = append(pl.Ops, libovsdb.Operation{
		Op: libovsdb.OperationInsert, Table: vswitchdb.CTTimeoutPolicyTable, UUIDName: policy,
		Row: libovsdb.Row{"timeouts": libovsdb.OvsMap{GoMap: map[any]any{vswitchdb.CTTimeoutPolicyTimeoutsTCPSynSent: synTimeout}}},
	}, libovsdb.Operation{
		Op: libovsdb.OperationInsert, Table: vswitchdb.CTZoneTable, UUIDName: zone,
		Row: libovsdb.Row{"timeout_policy": libovsdb.UUID{GoUUID: policy}, "external_ids": ovsMap(map[string]string{names.CTZone: name})},
	})
	return libovsdb.UUID{GoUUID: zone}
}
