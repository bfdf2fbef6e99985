package ofctl

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// As printed by Open vSwitch 3.1.
const dump = `tcp,orig=(src=10.128.1.3,dst=198.18.0.12,sport=40000,dport=31386),reply=(src=10.128.1.5,dst=10.128.1.3,sport=8080,dport=40000),zone=5,protoinfo=(state=ESTABLISHED)
udp,orig=(src=10.128.1.3,dst=198.18.0.12,sport=40000,dport=31386),reply=(src=10.128.1.5,dst=10.128.1.3,sport=8080,dport=40000),zone=5,mark=2
udp,orig=(src=10.128.1.4,dst=198.18.0.12,sport=40001,dport=31386),reply=(src=10.128.1.5,dst=10.128.1.4,sport=8080,dport=40001),zone=6
udp,orig=(src=10.128.1.3,dst=10.128.1.5,sport=40000,dport=8080),reply=(src=10.128.1.5,dst=10.128.1.3,sport=8080,dport=40000),zone=7
udp,orig=(src=fd01::3,dst=fd00::c,sport=40000,dport=31386),reply=(src=fd01::5,dst=fd01::3,sport=8080,dport=40000),zone=8
udp,orig=(src=10.128.1.3,dst=198.18.0.12,sport=40000,dport=31386),reply=(src=172.30.0.10,dst=10.128.1.3,sport=80,dport=40000)
icmp,orig=(src=10.128.1.3,dst=10.128.1.5,id=1,type=8,code=0),reply=(src=10.128.1.5,dst=10.128.1.3,id=1,type=0,code=0),zone=7
`

// Zone 0 is the host's, on the kernel's datapath.
func TestTranslatedConnections(t *testing.T) {
	at := netip.MustParseAddrPort
	web := Connection{at("198.18.0.12:31386"), at("10.128.1.5:8080")}
	want := []tracked{{web, "5"}, {web, "6"}, {Connection{at("[fd00::c]:31386"), at("[fd01::5]:8080")}, "8"}}
	if diff := cmp.Diff(want, translated(dump), cmp.Comparer(func(a, b tracked) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := tuple("src", want[2].Answers); got != "ct_ipv6_src=fd01::5,ct_nw_proto=17,ct_tp_src=8080" {
		t.Errorf("selected by %q", got)
	}
}
