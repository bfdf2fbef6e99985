package ovncontroller

import (
	"context"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

const (
	// timeoutPolicies is a capability of a datapath. Of all programs only ovs-vswitchd and this one use it.
	timeoutPolicies = "ct_timeout"
	// icmpReply is the userspace datapath's default of icmp_reply in seconds (ct_dpif_netdev_tp_def in lib/conntrack-tp.c).
	icmpReply = 30
)

// changePolicies changes the timeout policy of each zone once in the life of an ovs-vswitchd, without an effect on
// connections: it adds a default value, or removes it. From 3.3 on, ovs-vswitchd ignores the policy of a zone new to
// it, as all are at its start, until the policy changes (ct_zone_alloc in vswitchd/bridge.c). So ovs-vswitchd must have
// read the zone before: it has reached next_cfg. The record is in the capability ct_timeout: "true" and the UUIDs of the
// zones' rows. ovs-vswitchd writes "true" alone at its start, with the zones it has read.
func (d *datapath) changePolicies(ctx context.Context, c client.Client, pl *confdb.Plan) error {
	words := strings.Fields(d.row.Capabilities[timeoutPolicies])
	if r := release(d.root); len(words) == 0 || r != nil && slices.Compare(r, release33()) < 0 {
		return nil
	}
	var changed []string
	for _, zone := range d.keptZones() {
		if !slices.Contains(words[1:], zone.UUID) {
			if d.root.CurCfg < d.root.NextCfg {
				continue
			}
			if err := changePolicy(ctx, c, pl, zone); err != nil {
				return err
			}
		}
		changed = append(changed, zone.UUID)
	}
	slices.Sort(changed)
	if value := strings.Join(append(words[:1:1], changed...), " "); value != d.row.Capabilities[timeoutPolicies] {
		setCapability(pl, d.row, timeoutPolicies, value)
	}
	return nil
}

// changePolicy adds a default to a zone's timeout policy, or removes it.
func changePolicy(ctx context.Context, c client.Client, pl *confdb.Plan, zone *vswitchdb.CTZone) error {
	if zone.TimeoutPolicy == nil {
		return nil
	}
	policy := &vswitchdb.CTTimeoutPolicy{UUID: *zone.TimeoutPolicy}
	if ok, err := confdb.Get(ctx, c, policy); !ok || err != nil {
		return err
	}
	key := vswitchdb.CTTimeoutPolicyTimeoutsICMPReply
	m := libovsdb.NewMutation("timeouts", libovsdb.MutateOperationInsert, libovsdb.OvsMap{GoMap: map[any]any{key: icmpReply}})
	if _, has := policy.Timeouts[key]; has {
		m = libovsdb.NewMutation("timeouts", libovsdb.MutateOperationDelete, libovsdb.OvsSet{GoSet: []any{key}})
	}
	mutateRow(pl, vswitchdb.CTTimeoutPolicyTable, policy.UUID, m)
	return nil
}
