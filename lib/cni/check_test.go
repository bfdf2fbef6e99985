package cni_test

import (
	"context"
	"encoding/base64"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
)

func testCheck(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.ip6 = "fd01::cc"
	s.assign(t)
	r := s.start(t, run{command: "ADD"})
	r.end(t)
	previous := r.stdout.String()
	check := func() result {
		return s.call(t, run{command: "CHECK", stdin: `{"cniVersion":"1.1.0","name":"ovn-k8s","type":"x","prevResult":` + previous + `}`})
	}
	if res := check(); res.Code != 0 {
		t.Errorf("after ADD: %+v", res)
	}
	// additions of a later plugin in the list
	w.must(t, s.exec("ip", "route", "add", "172.31.0.0/16", "via", "10.1.0.1"))
	w.must(t, s.exec("ip", "addr", "add", "10.9.9.9/32", "dev", "eth0"))
	if res := check(); res.Code != 0 {
		t.Errorf("with more than ADD made: %+v", res)
	}
	// H18b: harmless changes by a later plugin (tuning) or by the pod
	w.must(t, s.exec("sysctl", "-qw", "net.ipv4.conf.eth0.arp_announce=0", "net.ipv4.conf.eth0.rp_filter=0", "net.ipv6.conf.eth0.accept_ra=1", "net.ipv6.conf.eth0.accept_dad=1"))
	w.must(t, s.exec("ip", "route", "replace", "default", "via", "10.1.0.1"))
	w.must(t, s.exec("ip", "-6", "route", "del", "default"))
	w.must(t, s.exec("ip", "-6", "route", "add", "default", "via", "fd01::1", "dev", "eth0", "metric", "512"))
	w.must(t, s.exec("ip", "link", "set", "eth0", "mtu", "1300"))
	if res := check(); res.Code != 0 {
		t.Errorf("with sysctls, routes and an MTU of a later plugin: %+v", res)
	}
	w.must(t, s.exec("ip", "link", "set", "eth0", "mtu", "1400"))
	for _, test := range []struct {
		broken []string
		want   string
		mend   []string
	}{
		{[]string{"ip", "addr", "del", s.ip4 + "/16", "dev", "eth0"}, "add address " + s.ip4 + "/16", []string{"ip", "addr", "add", s.ip4 + "/16", "dev", "eth0"}},
		{[]string{"ip", "route", "replace", "default", "via", "10.1.0.9"}, "add route 0.0.0.0/0", []string{"ip", "route", "replace", "default", "via", "10.1.0.1", "proto", "46"}},
		{[]string{"ip", "addr", "del", "fd01::cc/64", "dev", "eth0"}, "add address fd01::cc/64", []string{"ip", "addr", "add", "fd01::cc/64", "dev", "eth0", "nodad"}},
		{[]string{"ip", "-6", "route", "del", "default"}, "add route ::/0", []string{"ip", "-6", "route", "add", "default", "via", "fd01::1", "proto", "46"}},
		{[]string{"sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=1"}, "add address fd01::cc/64", []string{"sh", "-c", "sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0; ip addr add fd01::cc/64 dev eth0 nodad; ip -6 route add default via fd01::1"}},
		{[]string{"ip", "link", "set", "eth0", "down"}, "set eth0 up", []string{"sh", "-c", "ip link set eth0 up; ip addr replace fd01::cc/64 dev eth0 nodad; ip route replace default via 10.1.0.1; ip -6 route replace default via fd01::1"}},
		{[]string{"ip", "link", "set", "eth0", "mtu", "1450"}, "set the MTU", []string{"ip", "link", "set", "eth0", "mtu", "1400"}},
		{[]string{"ip", "link", "set", "eth0", "address", "02:00:00:00:00:01"}, "set the MAC", []string{"ip", "link", "set", "eth0", "address", s.mac()}},
	} {
		w.must(t, s.exec(test.broken[0], test.broken[1:]...))
		if res := check(); res.Code != 100 || !strings.Contains(res.Details, test.want) {
			t.Errorf("after %v: %+v", test.broken, res)
		}
		w.must(t, s.exec(test.mend[0], test.mend[1:]...))
	}
	s.add(t) // repairs the rest, such as the route deleted with the address
	if res := check(); res.Code != 0 {
		t.Errorf("mended: %+v", res)
	}
	w.vsctl(t, "del-port", s.host())
	if res := check(); res.Code != 100 || !strings.Contains(res.Details, "not in the database") {
		t.Errorf("without port: %+v", res)
	}
	s.del(t)
	if res := check(); res.Code != 100 || !strings.Contains(res.Details, "veth pair of") {
		t.Errorf("after DEL: %+v", res)
	}
	if res := s.call(t, run{command: "CHECK"}); res.Code != 7 || !strings.Contains(res.Msg, "prevResult") {
		t.Errorf("without prevResult: %+v", res)
	}
	if res := s.call(t, run{command: "CHECK", version: "0.3.1"}); res.Code != 1 {
		t.Errorf("before CHECK was invented: %+v", res)
	}
}

func testStatus(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	status := func() result { return s.call(t, run{command: "STATUS"}) }
	if res := status(); res.Code != 0 {
		t.Errorf("%+v", res)
	}
	for key, want := range map[string]string{"k8s-api-server": "K8S_API_SERVER not set", "ovn-remote": "ovn-remote is not set"} {
		value := w.vsctl(t, "get", "Open_vSwitch", ".", "external_ids:"+key)
		w.vsctl(t, "remove", "Open_vSwitch", ".", "external_ids", key)
		if res := status(); res.Code != 50 || !strings.Contains(res.Msg+res.Details, want) {
			t.Errorf("without %s: %+v", key, res)
		}
		w.setIDs(t, key+"="+strings.Trim(value, `"`))
	}
	testForeignSettings(t, w)
	// Findings, section 5: an expired token, a stopped daemon, a missing bridge.
	encode := base64.RawURLEncoding.EncodeToString
	w.setIDs(t, "k8s-api-token="+encode([]byte("{}"))+"."+encode([]byte(`{"exp":1700000000}`))+".c2ln")
	if res := status(); res.Code != 50 || !strings.Contains(res.Msg+res.Details, "ended at 2023-11-14T22:13:20Z") {
		t.Errorf("with a token that has ended: %+v", res)
	}
	w.setIDs(t, "k8s-api-token="+w.kube.Token)
	w.stop("ovn-controller") // by SIGKILL: its socket stays
	if res := status(); res.Code != 51 || !strings.Contains(res.Msg+res.Details, "ovn-controller is stopped") {
		t.Errorf("without ovn-controller: %+v", res)
	}
	w.vsctl(t, "del-br", "br-int")
	if res := status(); res.Code != 51 || !strings.Contains(res.Msg+res.Details, "was minion-init run?") {
		t.Errorf("without br-int: %+v", res)
	}
	w.startController(t)
	await(t, "STATUS is fine again", func() bool { return status().Code == 0 })
}

// testForeignSettings: invalid settings of other programs, of which these go on with the former ones, stop no pods.
func testForeignSettings(t *testing.T, w *world) {
	t.Helper()
	s := w.sandbox(t, nil)
	s.assign(t)
	w.setIDs(t, "ovn-k8s-firewall=nft", "ovn-k8s-service-cidr=10.96.0.1/12", "ovn-k8s-healthz-bind-address=x", "ovn-nb=x")
	for _, command := range []string{"STATUS", "ADD", "DEL"} {
		if res := s.call(t, run{command: command}); res.Code != 0 {
			t.Errorf("%s with invalid settings of others: %+v", command, res)
		}
	}
	for _, key := range []string{"ovn-k8s-firewall", "ovn-k8s-service-cidr", "ovn-k8s-healthz-bind-address", "ovn-nb"} {
		w.vsctl(t, "remove", "Open_vSwitch", ".", "external_ids", key)
	}
}

// testStatusOverRestarts: a STATUS during the restart of a daemon waits for it. Its failure would make the Node NotReady, and
// take its pods out of all Services.
func testStatusOverRestarts(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	for _, daemon := range []struct {
		name    string
		restart func()
	}{
		{"ovn-controller", func() { w.startController(t) }},
		{"ovs-vswitchd", func() { w.startVswitchd(t) }},
		{"ovsdb-server", func() { w.startOVSDB(t) }},
	} {
		w.stop(daemon.name)
		asking := s.start(t, run{command: "STATUS"})
		time.Sleep(time.Second) // as long as a restart takes
		daemon.restart()
		if res := asking.end(t); res.Code != 0 {
			t.Errorf("STATUS over a restart of %s: %+v", daemon.name, res)
		}
	}
}

func testBandwidth(t *testing.T, w *world) {
	annotated := func(in, out string) *sandbox {
		return w.sandbox(t, func(p *corev1.Pod) {
			p.Annotations = map[string]string{"kubernetes.io/ingress-bandwidth": in, "kubernetes.io/egress-bandwidth": out}
		})
	}
	s := annotated("10M", "20M")
	s.assign(t)
	s.add(t)
	s.ping(t, "10.1.0.1")
	if q := w.vsctl(t, "--columns=type,other_config", "list", "QoS"); !strings.Contains(q, "10000000") {
		t.Errorf("QoS is %s", q)
	}
	await(t, "the shaper of the host's end", func() bool {
		return strings.Contains(w.must(t, w.in("tc", "class", "show", "dev", s.host())), "rate 10Mbit")
	})
	if host.Datapath() == host.Kernel { // Open vSwitch polices
		await(t, "the policer of the host's end", func() bool {
			return strings.Contains(w.must(t, w.in("tc", "filter", "show", "dev", s.host(), "ingress")), "rate 20Mbit")
		})
	} else if q := w.must(t, s.exec("tc", "qdisc", "show", "dev", "eth0")); !strings.Contains(q, "tbf") || !strings.Contains(q, "rate 20Mbit") {
		t.Errorf("the shaper of the container's end is %s", q)
	}
	s.add(t)
	s.isLimited(t)
	s.del(t)
	bad := annotated("fast", "20M")
	bad.assign(t)
	if res := bad.call(t, run{command: "ADD"}); res.Code != 7 || !strings.Contains(res.Msg, `kubernetes.io/ingress-bandwidth of the pod is "fast"`) {
		t.Errorf("%+v", res)
	}
}

// isLimited fails the test if TCP from or to another pod is faster than the limits of testBandwidth. A busy machine is slower.
func (s *sandbox) isLimited(t *testing.T) {
	t.Helper()
	const in, out, seconds = 10_000_000, 20_000_000, 2
	other := s.w.sandbox(t, nil)
	other.assign(t)
	other.add(t)
	server, err := probe.Serve(other.netns, other.pod, 8080)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit.Of(time.Minute))
	defer cancel()
	way := probe.Probe{Netns: s.netns, Network: "tcp", Address: probe.Address(netip.MustParseAddr(other.ip4), 8080)}
	if _, err := way.Until(ctx); err != nil {
		t.Fatal(err)
	}
	for _, d := range []struct {
		name string
		rate int // bit/s
		send func(ctx context.Context, size int) error
	}{{"to the pod", in, way.Download}, {"from the pod", out, way.Upload}} {
		began := time.Now()
		if err := d.send(ctx, seconds*d.rate/8); err != nil {
			t.Fatalf("%s: %v", d.name, err)
		}
		// 15 % more, for the first burst
		if rate := seconds * float64(d.rate) / time.Since(began).Seconds(); rate > 1.15*float64(d.rate) {
			t.Errorf("TCP %s has %.1f Mbit/s, more than %d", d.name, rate/1e6, d.rate/1_000_000)
		}
	}
	other.del(t)
}
