package southbound_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/ovsdb/southbound"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// P3: a gateway's host reads its router's answers from the Southbound database, also after the router was made
// again with another datapath.
func TestFollowAnswers(t *testing.T) {
	require.Nothing(t, require.Central, ovntest.Missing())
	c, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	do := func(args ...string) {
		t.Helper()
		if out, err := c.NBCtl(args...); err != nil {
			t.Fatal(out, err)
		}
	}
	router := func(address string) {
		t.Helper()
		do("--", "lr-add", "GR_gw", "--", "set", "Logical_Router", "GR_gw", "options:chassis=c", "--", "lrp-add", "GR_gw", "rtoe-GR_gw", "02:00:00:00:00:01", "192.0.2.5/24", "2001:db8::5/64",
			"--", "--if-exists", "lb-del", "one", "--", "lb-add", "one", address, "", "--", "set", "Load_Balancer", "one", "options:neighbor_responder=all", "--", "lr-lb-add", "GR_gw", "one")
	}
	ctx, cancel := context.WithCancel(t.Context())
	changes, ended := make(chan southbound.Answers, 100), make(chan error, 1)
	go func() {
		cfg := config.Config{OVNRemote: c.SB}
		ended <- southbound.FollowAnswers(ctx, cfg, southbound.RouterPort{Router: "GR_gw", Port: "rtoe-GR_gw", NIC: "eth1_gw"}, nil, func(a southbound.Answers) { changes <- a })
	}()
	await := func(want string) {
		t.Helper()
		last := ""
		for timeout := time.After(20 * time.Second); last != want; {
			select {
			case a := <-changes:
				last = fmt.Sprintf("%v %d %s", a.MAC, a.VLAN, ipnet.Join(a.Addrs))
			case <-timeout:
				t.Fatalf("answers are %q, want %q", last, want)
			}
		}
	}
	router("192.0.2.9")
	await("02:00:00:00:00:01 0 192.0.2.9")
	do("--", "lb-add", "two", "2001:db8::9", "", "--", "set", "Load_Balancer", "two", "options:neighbor_responder=all", "--", "lr-lb-add", "GR_gw", "two")
	await("02:00:00:00:00:01 0 192.0.2.9,2001:db8::9")
	do("--", "ls-add", "ext", "--", "lsp-add", "ext", "eth1_gw.7", "eth1_gw", "7")
	await("02:00:00:00:00:01 7 192.0.2.9,2001:db8::9")
	do("--wait=sb", "lr-del", "GR_gw") // by itself: ovn-northd 26.03.1 aborts if it sees a new datapath at the same time
	do("--wait=sb", "lr-add", "other")
	router("192.0.2.10")
	await("02:00:00:00:00:01 7 192.0.2.10")
	// Every host may write these rows, and ovn-northd 26.03 leaves them so until the port changes.
	for _, mac := range []string{`mac=" "`, `mac="02:00:00:00:00:01 192.0.2.5/24 2001:db8::5/64"`} {
		if out, err := c.SBCtl("set", "Port_Binding", "rtoe-GR_gw", mac); err != nil {
			t.Fatal(out, err)
		}
	}
	do("--", "lb-add", "three", "192.0.2.11", "", "--", "set", "Load_Balancer", "three", "options:neighbor_responder=all", "--", "lr-lb-add", "GR_gw", "three")
	await("02:00:00:00:00:01 7 192.0.2.10,192.0.2.11")
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Errorf("it ended with %v", err)
	}
}
