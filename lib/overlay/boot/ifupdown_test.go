package boot

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/ovsdb/vswitch"
)

func testHost(subnet string) Management {
	p := netip.MustParsePrefix(subnet)
	return Management{
		Port:  vswitch.InternalPort{Bridge: "br-int", Name: "k8s-n", MAC: "0a:58:00:00:00:02", MTU: 1400, ExternalIDs: map[string]string{"iface-id": "k8s-n"}},
		State: link.State{Interface: "k8s-n", Addresses: []netip.Prefix{netip.PrefixFrom(p.Addr().Next().Next(), p.Bits())}},
	}
}

func TestStanzasOfOthersStay(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"empty":                   {"", ""},
		"without a last line end": {"auto lo", "auto lo\n"},
		"comments":                {"# ours: br-int\n\nauto lo # k8s-n\n", "# ours: br-int\n\nauto lo # k8s-n\n"},
		"several on a line":       {"allow-br-int eth1 k8s-n eth2\nallow-ovs br-int br-ex\n", "allow-br-int eth1 eth2\nallow-ovs br-ex\n"},
		"another node":            {"allow-br-int k8s-n2\niface k8s-n2 inet manual\n", "allow-br-int k8s-n2\niface k8s-n2 inet manual\n"},
		"an operator's bridge": {
			"allow-ovs br-int\niface br-int inet manual\n    ovs_ports k8s-n\n    ovs_extra set bridge br-int fail_mode=secure -- set bridge br-int protocols=OpenFlow15\n",
			"allow-ovs br-int\niface br-int inet manual\n    ovs_ports k8s-n\n    ovs_extra set bridge br-int fail_mode=secure -- set bridge br-int protocols=OpenFlow15\n",
		},
		"half a block": {"auto lo\n" + beginMark + " k8s-n\niface k8s-n inet manual\nauto eth0\n", "auto lo\nauto eth0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			edited, _ := withStanzas(tt.text, testHost("10.0.0.0/24"))
			if diff := cmp.Diff(tt.want, withoutStanzas(edited, "k8s-n")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// For any file, writing is idempotent, removes the stanzas written for another subnet, and keeps all lines not
// about the node.
func FuzzStanzas(f *testing.F) {
	f.Add("auto lo\niface lo inet loopback\n")
	f.Add("allow-ovs br-int\niface br-int inet manual\n ovs_ports k8s-n\n\nallow-br-int k8s-n\niface k8s-n inet static\n address 1.2.3.4")
	f.Add(beginMark + " k8s-n\n\n" + endMark + " k8s-n\n" + beginMark)
	f.Add("source /x\n\\\niface\nallow-\n")
	f.Fuzz(func(t *testing.T, text string) {
		before, _ := withStanzas(text, testHost("10.0.0.0/24"))
		once, _ := withStanzas(before, testHost("fd01::/64"))
		twice, _ := withStanzas(once, testHost("fd01::/64"))
		if diff := cmp.Diff(once, twice); diff != "" {
			t.Errorf("not idempotent (-once +twice)\n%s", diff)
		}
		if n := strings.Count(once, "iface k8s-n inet6 static\n"); n != 1 {
			t.Errorf("%d stanzas:\n%s", n, once)
		}
		if strings.Contains(once, "10.0.0.2\n    netmask") && !strings.Contains(text, "10.0.0.2\n    netmask") {
			t.Errorf("the old address stays:\n%s", once)
		}
		if !strings.Contains(text, "k8s-n") && !strings.Contains(text, "br-int") && !strings.HasPrefix(once, strings.TrimSuffix(text, "\n")) {
			t.Errorf("lines of others are lost:\n%s", once)
		}
	})
}
