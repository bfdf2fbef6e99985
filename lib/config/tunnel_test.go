package config_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/config"
)

// P2: the MTU of pods, with the headers of tunnels, must fit the NIC of ovn-encap-ip.
func TestTunnels(t *testing.T) {
	nic := func(a netip.Addr) (string, int) {
		switch a.String() {
		case "10.0.0.2", "fd00::2":
			return "eth0", 1500
		case "10.0.0.3":
			return "eth1", 1450
		}
		return "", 0
	}
	for _, c := range []struct {
		ip, kind string
		mtu      int
		want     []string
	}{
		{"", "geneve", 1400, nil},
		{"here", "geneve", 1400, nil},
		{"10.0.0.2", "geneve", 1400, []string{"1458 ok"}},
		{"10.0.0.2", "", 1442, []string{"1500 ok"}},
		{"10.0.0.2", "geneve", 1443, []string{"1501 mtu 1443 of pods is too large for tunnels: with their headers packets have 1501 bytes, but eth0 with ovn-encap-ip 10.0.0.2 takes 1500: set ovn-k8s-mtu to 1442 or less on all hosts, or raise the MTU of the network between them"}},
		{"fd00::2", "geneve", 1422, []string{"1500 ok"}},
		{"10.0.0.2", "geneve,vxlan", 1442, []string{"1500 ok"}},
		{"10.0.0.2", "stt", 1428, []string{"1500 ok"}},
		{"10.0.0.2,10.0.0.3", "geneve", 1400, []string{"1458 ok", "1458 mtu 1400 of pods is too large for tunnels: with their headers packets have 1458 bytes, but eth1 with ovn-encap-ip 10.0.0.3 takes 1450: set ovn-k8s-mtu to 1392 or less on all hosts, or raise the MTU of the network between them"}},
		{"10.9.9.9", "geneve", 1400, []string{"1458 ovn-encap-ip 10.9.9.9 is not an address of this host, so tunnels do not work: set external_ids:ovn-encap-ip of Open_vSwitch to one of its addresses"}},
	} {
		var got []string
		for _, tunnel := range (config.Config{EncapIP: c.ip, EncapType: c.kind, MTU: c.mtu}).Tunnels(nic) {
			verdict := "ok"
			if err := tunnel.Check(c.mtu); err != nil {
				verdict = err.Error()
			}
			got = append(got, fmt.Sprint(tunnel.Needs, " ", verdict))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c, diff)
		}
	}
}

// A type that ovn-controller does not know makes no tunnel.
func TestTunnelTypes(t *testing.T) {
	for value, want := range map[string]string{
		"geneve": "", "vxlan": "", "geneve,vxlan": "",
		"genev":         `"genev" is no type of tunnels; want geneve or vxlan, both with a comma and no space`,
		"geneve, vxlan": `" vxlan" is no type of tunnels; want geneve or vxlan, both with a comma and no space`,
		"Geneve":        `"Geneve" is no type of tunnels; want geneve or vxlan, both with a comma and no space`,
		"geneve,stt":    "tunnels of type stt were removed from Open vSwitch 3.6 and OVN 25.09, and need a kernel module of releases before 3.0; want geneve",
	} {
		got := ""
		if err := config.CheckTunnelTypes(value); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
}
