package checks

import (
	"fmt"
	"net/netip"
	"testing"

	"ovn-k8s/lib/config"
)

// Each reason why tunnels do not work has an Event of its own.
func TestTunnelProblem(t *testing.T) {
	good := config.Tunnel{Local: netip.MustParseAddr("192.0.2.1"), NIC: "eth0", MTU: 1500, Needs: 1458}
	small, nowhere := good, good
	small.MTU, nowhere.NIC = 1450, ""
	for _, tt := range []struct {
		types  string
		tunnel config.Tunnel
		want   string
	}{
		{"geneve", good, ""},
		{"", good, ""},
		{"genev", good, `BadTunnelType bad ovn-encap-type "genev" of Open_vSwitch: "genev" is no type of tunnels; want geneve or vxlan, both with a comma and no space`},
		{"geneve", config.Tunnel{}, "NoTunnelAddress ovn-encap-ip of Open_vSwitch is not set, so that this host has no tunnels: set it to an address of this host"},
		{"geneve", nowhere, "NoTunnelAddress ovn-encap-ip 192.0.2.1 is not an address of this host, so tunnels do not work: set external_ids:ovn-encap-ip of Open_vSwitch to one of its addresses"},
		{"geneve", small, "MTUTooLarge mtu 1400 of pods is too large for tunnels: with their headers packets have 1458 bytes, but eth0 with ovn-encap-ip 192.0.2.1 takes 1450: set ovn-k8s-mtu to 1392 or less on all hosts, or raise the MTU of the network between them"},
	} {
		var tunnels []config.Tunnel
		if tt.tunnel.Local.IsValid() {
			tunnels = append(tunnels, tt.tunnel)
		}
		got := ""
		if p := tunnelProblem(config.Config{EncapType: tt.types, MTU: 1400}, tunnels, tt.tunnel); p.error != nil {
			got = fmt.Sprint(p.Reason, " ", p.error)
		}
		if got != tt.want {
			t.Errorf("%q, %+v: got %s\nwant %s", tt.types, tt.tunnel, got, tt.want)
		}
	}
}
