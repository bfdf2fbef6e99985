package main

import (
	"strings"
	"testing"
)

// Targets of --probe, and the API server, must answer after the move if they did before. The bridge exists already,
// and drops packets to some of them.
func TestProbes(t *testing.T) {
	const (
		lossy = `ovs-vsctl add-br breth0 -- set Bridge breth0 datapath_type=$OVNK8S_TEST_DATAPATH
			ovs-ofctl add-flow breth0 priority=9,ip,nw_dst=198.19.0.1,actions=drop
			ovs-ofctl add-flow breth0 priority=9,icmp6,icmp_type=128,ipv6_dst=fd00:198:19::1,actions=drop;`
		server = "ovs-vsctl set Open_vSwitch . external_ids:k8s-api-server=https://198.19.0.1:6443;"
		gone   = " answered before, but does not answer now"
		silent = " does not answer now, so it is not checked after the move\n"
	)
	for name, tt := range map[string]struct {
		setup, args, want string // want is in the only line; "" means success without one
		stays             bool   // the NIC stays: the move is undone
	}{
		"ICMP":           {"", "--probe=198.19.0.1", "", false},
		"ICMPv6":         {"", "--probe=fd00:198:19::1", "", false},
		"TCP":            {"", "--probe=198.19.0.1:22", "", false},
		"API":            {server, "", "", false},
		"ICMP, silent":   {"", "--probe=198.19.0.9", "warning: 198.19.0.9" + silent, false},
		"TCP, silent":    {"", "--probe=198.19.0.9:22", "warning: 198.19.0.9:22" + silent, false},
		"ICMP, lost":     {lossy, "--probe=198.19.0.1", "198.19.0.1" + gone, true},
		"ICMPv6, lost":   {lossy, "--probe=fd00:198:19::1", "fd00:198:19::1" + gone, true},
		"TCP, lost":      {lossy, "--probe=198.19.0.1:22", "198.19.0.1:22" + gone, true},
		"API, lost":      {lossy + server, "", "the API server at 198.19.0.1:6443" + gone, true},
		"API, elsewhere": {lossy, "--k8s-api-server=https://198.19.0.1:443", "the API server at 198.19.0.1:443" + gone, true},
		"API, bad":       {"", "--k8s-api-server=nonsense://x", "the API server cannot be asked, because of the configuration", false},
		"nobody asked":   {lossy, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // lost probes take askAfter
			n := newNode(t)
			n.script(tt.setup)
			before := n.state()
			r := n.run("nics-to-bridge eth0 " + tt.args)
			lines := strings.Count(r.Err, "\n")
			if !strings.Contains(r.Err, tt.want) || (lines == 0) != (tt.want == "") || lines > 1 {
				t.Errorf("%+v, want %q", r, tt.want)
			}
			if tt.stays {
				n.unchanged("a move that was undone", before)
				has(t, r.Err, "eth0 is as it was before")
			} else {
				has(t, n.script("ip route"), "default via 198.18.0.1 dev breth0")
			}
			if (r.Status == 0) == tt.stays {
				t.Errorf("exit status %d", r.Status)
			}
		})
	}
}
