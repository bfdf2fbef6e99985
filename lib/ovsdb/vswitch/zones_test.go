package vswitch_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// P9: the timeouts of a router's DNAT zone follow the zone, and timeouts of others stay.
func TestExpireSYNs(t *testing.T) {
	n := newNode(t)
	s := n.connect()
	n.vsctl("--", "--id=@d", "create", "Datapath", "external_ids:test=yes", "--", "set", "Open_vSwitch", ".", "datapaths:netdev=@d",
		"--", "add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev")
	n.vsctl("add-zone-tp", "netdev", "zone=7", "tcp_syn_sent=9")
	n.vsctl("set", "Open_vSwitch", ".", `ovs_version="3.2.0"`) // applies timeouts at once
	const uuid = "12fac7c8-cf84-48db-ab8c-2703f8b5ab37"
	timeouts := func(zone int) string {
		return fmt.Sprintf("Zone:%d, Timeout Policies: tcp_syn_sent=1\n", zone)
	}
	const others = "Zone:7, Timeout Policies: tcp_syn_sent=9"
	for _, step := range []struct {
		name, ids, want string
		changed         bool
	}{
		{"no zone yet", "other=1", others, false},
		{"zone by UUID", "ct-zone-" + uuid + "_dnat=4", timeouts(4) + others, true},
		{"nothing changed", "ct-zone-" + uuid + "_snat=5", timeouts(4) + others, false},
		{"another number", "ct-zone-" + uuid + "_dnat=6", timeouts(6) + others, true},
		{"another name for it", "ct-zone-GR_n1_dnat=6", timeouts(6) + others, true},
		{"another router's", "ct-zone-GR_n2_dnat=5", timeouts(6) + others, false},
		{"a zone with others' timeouts", "ct-zone-GR_n1_dnat=7", others, true},
	} {
		if step.name == "another name for it" {
			n.vsctl("remove", "Bridge", "br-int", "external_ids", "ct-zone-"+uuid+"_dnat")
		}
		n.vsctl("set", "Bridge", "br-int", "external_ids:"+step.ids)
		changed, err := s.Controller().ExpireSYNs(n.ctx(), []string{"GR_n1", uuid})
		if err != nil || changed != step.changed {
			t.Errorf("%s: %v, %v, want %v", step.name, changed, err, step.changed)
		}
		if got := n.vsctl("list-zone-tp", "netdev"); got != step.want {
			t.Errorf("%s:\n%s\nwant:\n%s", step.name, got, step.want)
		}
	}
}

// P9: ovs-vswitchd applies the timeouts of a zone, also after its restart: releases from 3.3 on ignore them until they
// change. A capability has the record of that change, and loses it with the zone.
func TestTimeoutsAreApplied(t *testing.T) {
	n := newNode(t)
	s := n.connect()
	n.vsctl("--", "--id=@d", "create", "Datapath", "external_ids:test=yes", "--", "set", "Open_vSwitch", ".", "datapaths:netdev=@d",
		"--", "add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev")
	capability := func() string {
		return n.vsctl("--bare", "--columns=capabilities", "list", "Datapath")
	}
	before := capability()
	changes := make(chan struct{}, 1)
	defer s.OnChange(func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	})()
	settle := func(step string, done func() bool) {
		t.Helper()
		for ctx := n.ctx(); ; {
			changed, err := s.Controller().ExpireSYNs(ctx, []string{"GR_n1"})
			if err != nil {
				t.Fatalf("%s: %v", step, err)
			}
			if !changed && done() {
				return
			}
			select {
			case <-changes:
			case <-ctx.Done():
				t.Fatalf("%s: timeouts %q, capabilities %s", step, n.vsctl("list-zone-tp", "netdev"), capability())
			}
		}
	}
	for _, zone := range []string{"4", "6"} {
		applied := func() bool { return n.expires(zone) && capability() != before }
		n.vsctl("set", "Bridge", "br-int", "external_ids:ct-zone-GR_n1_dnat="+zone)
		settle("zone "+zone, applied)
		stop(&n.daemon)
		n.startDaemon()
		settle("after a restart, zone "+zone, applied)
	}
	n.vsctl("remove", "Bridge", "br-int", "external_ids", "ct-zone-GR_n1_dnat")
	settle("no zone", func() bool { return capability() == before && n.vsctl("list-zone-tp", "netdev") == "" })
}

// expires reports whether ovs-vswitchd has a timeout policy for the TCP connections of a zone.
func (n *node) expires(zone string) bool {
	out, err := exec.Command("ovs-appctl", "--timeout=20", "--target="+n.dir+"/vswitchd.ctl",
		"ofproto/trace-packet-out", "br-int", "in_port=LOCAL,tcp", "ct(commit,zone="+zone+")").Output()
	return err == nil && strings.Contains(string(out), "timeout=")
}
