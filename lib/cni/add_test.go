package cni_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
)

func testAdd(t *testing.T, w *world) {
	w.setIDs(t, "ovn-k8s-mtu=1350")
	defer w.setIDs(t, "ovn-k8s-mtu=1400")
	a, b := w.sandbox(t, nil), w.sandbox(t, nil)
	a.assign(t)
	b.assign(t)
	got := a.add(t)
	b.add(t)
	a.ping(t, b.ip4) // the first packet
	b.ping(t, "10.1.0.1")

	ids := w.vsctl(t, "get", "Interface", a.host(), "external_ids")
	for _, want := range []string{
		fmt.Sprintf("attached_mac=%q", a.mac()), fmt.Sprintf("iface-id=default_%s", a.pod), fmt.Sprintf("ip_address=%q", a.ip4+"/16"),
		fmt.Sprintf("iface-id-ver=%q", a.uid), fmt.Sprintf("sandbox=%q", a.id), "ovn-k8s-network=ovn-k8s", "ovn-k8s-ifname=eth0",
	} {
		if !strings.Contains(strings.ReplaceAll(ids, `"`, ""), strings.ReplaceAll(want, `"`, "")) {
			t.Errorf("external_ids %s lack %s", ids, want)
		}
	}
	if br := w.vsctl(t, "port-to-br", a.host()); br != "br-int" {
		t.Errorf("%s is in %s", a.host(), br)
	}
	addr := w.must(t, a.exec("ip", "addr", "show", "eth0"))
	for _, want := range []string{"mtu 1350", "state UP", a.mac(), a.ip4 + "/16"} {
		if !strings.Contains(addr, want) {
			t.Errorf("eth0 lacks %s:\n%s", want, addr)
		}
	}
	if r := w.must(t, a.exec("ip", "route", "show", "default")); !strings.HasPrefix(r, "default via 10.1.0.1 dev eth0") {
		t.Errorf("the default route is %q", r)
	}
	if lo := w.must(t, a.exec("ip", "addr", "show", "lo")); !strings.Contains(lo, "127.0.0.1") {
		t.Errorf("lo is down:\n%s", lo)
	}
	checksums := map[string]string{host.Userspace: "tx-checksumming: off", host.Kernel: "tx-checksumming: on"}[host.Datapath()]
	if f := w.must(t, a.exec("ethtool", "-k", "eth0")); !strings.Contains(f, checksums) {
		t.Errorf("want %s:\n%s", checksums, f)
	}
	if l := w.must(t, w.in("ip", "link", "show", a.host())); !strings.Contains(l, "mtu 1350") {
		t.Errorf("the host's end: %s", l)
	}
	want := result{CNIVersion: "1.1.0"}
	if got.CNIVersion != want.CNIVersion || len(got.Interfaces) != 2 || len(got.IPs) != 1 || len(got.Routes) != 1 {
		t.Fatalf("the result is %+v", got)
	}
	if i := got.Interfaces[1]; i.Name != "eth0" || i.Mac != a.mac() || i.Sandbox != a.netns || i.Mtu != 1350 {
		t.Errorf("the container's interface is %+v", i)
	}
	if i := got.Interfaces[0]; i.Name != a.host() || i.Sandbox != "" || len(i.Mac) != 17 {
		t.Errorf("the host's interface is %+v", i)
	}
	if ip := got.IPs[0]; ip.Address != a.ip4+"/16" || ip.Gateway != "10.1.0.1" || *ip.Interface != 1 {
		t.Errorf("the address is %+v", ip)
	}
	if r := got.Routes[0]; r.Dst != "0.0.0.0/0" || r.GW != "10.1.0.1" {
		t.Errorf("the route is %+v", r)
	}
	if log := w.log(t); !regexp.MustCompile(`\|cni\|DBG\|ADD took annotation=\S+ config=\S+ container=\S+ installed=\S+ ovsdb=\S+ total=\S+ veth=\S+`).MatchString(log) {
		t.Errorf("no stages in the log:\n%s", log)
	}
	a.del(t)
	b.del(t)
}

func testDualStack(t *testing.T, w *world) {
	a, b := w.sandbox(t, nil), w.sandbox(t, nil)
	a.ip6, b.ip6 = "fd01::a", "fd01::b"
	a.assign(t)
	b.assign(t)
	b.add(t)
	got := a.add(t)
	a.ping(t, b.ip6) // the first packet
	a.ping(t, b.ip4)
	a.ping(t, "fd01::1")
	if len(got.IPs) != 2 || got.IPs[0].Address != a.ip4+"/16" || got.IPs[1].Address != "fd01::a/64" || got.IPs[1].Gateway != "fd01::1" {
		t.Errorf("the addresses are %+v", got.IPs)
	}
	if r := w.must(t, a.exec("ip", "-6", "route", "show", "default")); !strings.HasPrefix(r, "default via fd01::1 dev eth0") {
		t.Errorf("the default route is %q", r)
	}
	a.del(t)
	b.del(t)
}

func testOldAnnotation(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	w.nbctl(t, s.port()...)
	s.annotate(t, strings.ReplaceAll(s.annotation(), `"`, `'`))
	s.add(t)
	s.ping(t, "10.1.0.1")
	s.del(t)
}

func testAnnotationLater(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	r := s.start(t, run{command: "ADD"})
	// Nothing announces that the plugin waits for the API server: give it time to.
	time.Sleep(300 * time.Millisecond)
	if left := w.traces(t); len(left) > 0 {
		t.Errorf("made before the address is known: %v", left)
	}
	s.assign(t)
	if res := r.end(t); res.Code != 0 {
		t.Errorf("%+v", res)
	}
	s.ping(t, "10.1.0.1")
	s.del(t)
}

// testCopiedAnnotation: the annotation was copied with the YAML of another pod, and the watcher has not replaced it
// yet.
func testCopiedAnnotation(t *testing.T, w *world) {
	w.setIDs(t, "ovn-k8s-cni-timeout=4s")
	s := w.sandbox(t, nil)
	w.nbctl(t, s.port()...)
	s.annotate(t, s.annotation())
	s.annotateAs(t, names.AnnotationUID, "the-other-pod")
	if res := s.call(t, run{command: "ADD"}); res.Code != 11 || !strings.Contains(res.Details, "was copied from a pod") {
		t.Errorf("%+v", res)
	}
	w.setIDs(t, "ovn-k8s-cni-timeout=60s")
	s.annotateAs(t, names.AnnotationUID, s.uid)
	s.add(t)
	s.del(t)
}

func testAnnotationNever(t *testing.T, w *world) {
	w.setIDs(t, "ovn-k8s-cni-timeout=4s")
	defer w.setIDs(t, "ovn-k8s-cni-timeout=60s")
	s := w.sandbox(t, nil)
	for _, test := range []struct{ annotation, want string }{
		{"", `it has no annotation "ovn": is ovn-k8s-watcher running? If it is, another event of the pod says why`}, {"me", "is ovn-k8s-watcher running?"},
	} {
		if test.annotation != "" {
			s.annotate(t, test.annotation)
		}
		res := s.call(t, run{command: "ADD"})
		if res.Code != 11 || res.Msg != "failed to get pod annotation" || !strings.Contains(res.Details, test.want) || !regexp.MustCompile(`default/`+s.pod+` after (3\.\ds|4s): `).MatchString(res.Details) {
			t.Errorf("%+v", res)
		}
	}
}

func testAddTwice(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	first := s.add(t)
	uuid := w.vsctl(t, "get", "Interface", s.host(), "_uuid")
	second := s.add(t)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("(-first +second)\n%s", diff)
	}
	if again := w.vsctl(t, "get", "Interface", s.host(), "_uuid"); again != uuid {
		t.Error("the port was made anew")
	}
	s.ping(t, "10.1.0.1")
	// ADD repairs damage
	w.must(t, s.exec("ip", "addr", "flush", "dev", "eth0"))
	w.vsctl(t, "remove", "Interface", s.host(), "external_ids", "iface-id")
	s.add(t)
	s.ping(t, "10.1.0.1")
	if res := s.call(t, run{command: "ADD", env: map[string]string{"CNI_IFNAME": "net1"}}); res.Code != 4 || !strings.Contains(res.Msg, "as eth0 already") {
		t.Errorf("a second interface: %+v", res)
	}
	s.ping(t, "10.1.0.1")
	s.del(t)
}

func testNewSandbox(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	s.add(t)
	old := *s
	s.renew(t)
	s.add(t)
	s.ping(t, "10.1.0.1")
	if w.in("ovs-vsctl", "get", "Interface", old.host(), "_uuid").Run() == nil {
		t.Error("the old sandbox's port is left")
	}
	old.del(t) // late
	s.ping(t, "10.1.0.1")
	s.del(t)
}

func testOtherPod(t *testing.T, w *world) {
	w.setIDs(t, "ovn-k8s-cni-timeout=4s")
	defer w.setIDs(t, "ovn-k8s-cni-timeout=60s")
	s := w.sandbox(t, nil)
	s.assign(t)
	s.uid = "11111111-2222-3333-4444-555555555555"
	if res := s.call(t, run{command: "ADD"}); res.Code != 11 || !strings.Contains(res.Details, "another pod with this name") {
		t.Errorf("%+v", res)
	}
}

// The kubelet knows a static pod by another UID than the API server.
func testStaticPod(t *testing.T, w *world) {
	const uid = "0123456789abcdef0123456789abcdef"
	s := w.sandbox(t, func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.mirror": uid} })
	s.assign(t)
	s.uid = uid
	s.add(t)
	s.ping(t, "10.1.0.1")
	s.del(t)
}

// The annotation may be forged by the user, and corrected by the watcher while the plugin runs.
func testForgedAnnotation(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	forged := strings.ReplaceAll(s.annotation(), s.ip4, "10.1.200.200")
	s.annotate(t, forged)
	r := s.start(t, run{command: "ADD"})
	await(t, "the veth pair", func() bool { return w.in("ip", "link", "show", s.host()).Run() == nil })
	s.annotate(t, s.annotation())
	w.nbctl(t, s.port()...)
	if res := r.end(t); res.Code != 11 || res.Msg != "the pod's annotation changed" {
		t.Errorf("%+v", res)
	}
	w.clean(t, "by a failed ADD")
	s.add(t)
	s.ping(t, "10.1.0.1")
	s.del(t)
}

func testParallel(t *testing.T, w *world) {
	var all []*sandbox
	var rows []string
	for range limit.Number(50) {
		s := w.sandbox(t, nil)
		all = append(all, s)
		rows = append(append(rows, "--"), s.port()...)
		s.annotate(t, s.annotation())
	}
	w.nbctl(t, rows[1:]...)
	var wait sync.WaitGroup
	for i, s := range all {
		wait.Go(func() {
			if res := s.call(t, run{command: "ADD"}); res.Code != 0 {
				t.Errorf("%+v", res)
			}
			s.ping(t, []string{"10.1.0.1", all[0].ip4}[min(i, 0)])
		})
	}
	wait.Wait()
	all[len(all)-1].ping(t, all[0].ip4)
	for _, s := range all {
		wait.Go(func() { s.del(t) })
	}
	wait.Wait()
}
