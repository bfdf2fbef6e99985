package cni_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
)

// TestPlugin runs the program on a real node. Its subtests share the node and leave it as they found it.
func TestPlugin(t *testing.T) {
	runParts(t, newWorld(t, false), parts())
}

// A part is a test in a world.
type part struct {
	name string
	run  func(*testing.T, *world)
}

// parts are the tests for the stand-alone plugin as well as for the CNI server with its shim: for that, they are the checks
// AC-62 (Add), AC-63 (AnnotationNever), AC-64 (Del), AC-65 and AC-66 (Bandwidth) of ovnkube.
func parts() []part {
	return []part{
		{"Check58_Add", testAdd},
		{"Check58_DualStack", testDualStack},
		{"Check59_OldAnnotation", testOldAnnotation},
		{"Check60_AnnotationLater", testAnnotationLater},
		{"Check60_AnnotationNever", testAnnotationNever},
		{"CopiedAnnotation", testCopiedAnnotation},
		{"Check61_Del", testDel},
		{"Check62_Variables", testVariables},
		{"Check63_Versions", testVersions},
		{"BadInput", testBadInput},
		{"IDsThatBeginAlike", testIDsThatBeginAlike},
		{"PodNamedAsANIC", testPodNamedAsANIC},
		{"FullDisk", testFullDisk},
		{"HugeInput", testHugeInput},
		{"AddAndDelAtOnce", testAddAndDelAtOnce},
		{"AddTwice", testAddTwice},
		{"NewSandbox", testNewSandbox},
		{"OtherPodOfThatName", testOtherPod},
		{"StaticPod", testStaticPod},
		{"DelOfTheOriginals", testDelOfTheOriginals},
		{"ForgedAnnotation", testForgedAnnotation},
		{"Parallel", testParallel},
		{"Check", testCheck},
		{"GC", testGC},
		{"Status", testStatus},
		{"Bandwidth", testBandwidth},
		{"ResultNotWritten", testResultNotWritten},
		{"Sigterm", testSigterm},
		{"Kill", testKill},
		{"MissingStage", testMissingStage},
		{"WithoutOpenVSwitch", testWithoutOpenVSwitch},
		{"SilentOpenVSwitch", testSilentOpenVSwitch},
		{"WithoutIPv6", testWithoutIPv6},
		{"Secrets", testSecrets},
	}
}

func runParts(t *testing.T, w *world, parts []part) {
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) {
			part.run(t, w)
			w.clean(t, "by this part")
		})
	}
}

// del removes a sandbox's attachment.
func (s *sandbox) del(t *testing.T) {
	t.Helper()
	if res := s.call(t, run{command: "DEL"}); res.Code != 0 {
		t.Errorf("DEL: %+v", res)
	}
}

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
		{"", `it has no annotation "ovn": is ovn-k8s-watcher running?`}, {"me", "is ovn-k8s-watcher running?"},
	} {
		if test.annotation != "" {
			s.annotate(t, test.annotation)
		}
		res := s.call(t, run{command: "ADD"})
		if res.Code != 11 || res.Msg != "failed to get pod annotation" || !strings.Contains(res.Details, test.want) || !strings.Contains(res.Details, "default/"+s.pod+" after 4s") {
			t.Errorf("%+v", res)
		}
	}
}

func testDel(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	// a runtime with namespaces outside /run/netns
	elsewhere := filepath.Join(w.dir, "ns")
	w.must(t, exec.Command("touch", elsewhere))
	w.must(t, exec.Command("mount", "--bind", s.netns, elsewhere))
	defer func() { _ = exec.Command("umount", elsewhere).Run() }()
	if res := s.call(t, run{command: "ADD", env: map[string]string{"CNI_NETNS": elsewhere}}); res.Code != 0 {
		t.Fatalf("%+v", res)
	}
	if to, err := os.Readlink("/var/run/netns/" + s.id); err != nil || to != elsewhere {
		t.Errorf("/var/run/netns/%s is %q, %v", s.id, to, err)
	}
	// another interface of the container is not ours to remove
	if res := s.call(t, run{command: "DEL", env: map[string]string{"CNI_IFNAME": "net1"}}); res.Code != 0 {
		t.Errorf("%+v", res)
	}
	s.ping(t, "10.1.0.1")
	if _, err := os.Lstat("/var/run/netns/" + s.id); err != nil {
		t.Error(err)
	}
	s.del(t)
	w.clean(t, "by DEL")
	if _, err := os.Lstat("/var/run/netns/" + s.id); err == nil {
		t.Error("the link in /var/run/netns is left")
	}
	s.del(t)
	for _, env := range []map[string]string{{"CNI_NETNS": ""}, {"CNI_NETNS": "/nonexistent"}, {"CNI_ARGS": ""}, {"CNI_ARGS": "nonsense"}} {
		if res := s.call(t, run{command: "DEL", env: env}); res.Code != 0 {
			t.Errorf("DEL with %v: %+v", env, res)
		}
	}
}

func testVariables(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	res := s.call(t, run{command: "ADD", env: map[string]string{"CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_INFRA_CONTAINER_ID=" + s.id}})
	if res.Code != 100 || res.Msg != "required CNI variables missing" || res.Details != "K8S_POD_NAME in CNI_ARGS" {
		t.Errorf("%+v", res)
	}
	for _, v := range []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"} {
		if res := s.call(t, run{command: "ADD", env: map[string]string{v: ""}}); res.Code != 4 || !strings.Contains(res.Msg, v) {
			t.Errorf("without %s: %+v", v, res)
		}
	}
}

func testVersions(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	for _, v := range []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		r := s.start(t, run{command: "ADD", version: v, env: map[string]string{"CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + s.pod}})
		if res := r.end(t); res.Code != 0 || res.CNIVersion != v {
			t.Errorf("version %s: %+v", v, res)
		}
		// TestCheck63_ResultVersions checks the converted results
		s.del(t)
	}
	r := s.start(t, run{command: "VERSION"})
	r.end(t)
	if want := `"supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]`; !strings.Contains(r.stdout.String(), want) {
		t.Errorf("VERSION printed %s", r.stdout.String())
	}
}

// A badInput is a call with an error.
type badInput struct {
	name string
	run  run
	code int
	want string // in message or details
}

func badInputs() []badInput {
	return []badInput{
		{"not JSON", run{stdin: "x"}, 6, "invalid character"},
		{"another type", run{stdin: `[]`}, 6, "cannot unmarshal"},
		{"no name", run{stdin: `{"cniVersion":"1.1.0"}`}, 7, "missing network name"},
		{"unknown version", run{version: "9.9.9"}, 1, "9.9.9"},
		{"no version at all", run{version: "new"}, 1, "new"},
		{"no such namespace", run{env: map[string]string{"CNI_NETNS": "/run/netns/nonexistent"}}, 3, "/run/netns/nonexistent"},
		{"not a namespace", run{env: map[string]string{"CNI_NETNS": "/etc/hosts"}}, 4, "/etc/hosts"},
		{"the host's namespace", run{env: map[string]string{"CNI_NETNS": "/proc/self/ns/net"}}, 4, "host's own"},
		{"container ID with a path", run{env: map[string]string{"CNI_CONTAINERID": "../../etc"}}, 4, "../../etc"},
		{"long interface name", run{env: map[string]string{"CNI_IFNAME": "abcdefghijklmnop"}}, 4, "too long"},
		{"pod name", run{env: map[string]string{"CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=a/b"}}, 4, "a/b"},
		{"not the first plugin", run{conf: map[string]any{"prevResult": map[string]any{"cniVersion": "1.1.0"}}}, 2, "prevResult"},
		{"unknown command", run{command: "SING"}, 4, "SING"},
		{"lo is there already", run{env: map[string]string{"CNI_IFNAME": "lo"}}, 4, "lo in the container"},
	}
}

func testBadInput(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	for _, test := range badInputs() {
		t.Run(test.name, func(t *testing.T) {
			if test.run.command == "" {
				test.run.command = "ADD"
			}
			res := s.call(t, test.run)
			if res.Code != test.code || !strings.Contains(res.Msg+" "+res.Details, test.want) || res.CNIVersion == "" {
				t.Errorf("%+v", res)
			}
			if strings.Contains(res.Msg+res.Details, "\n") {
				t.Errorf("more than one line: %+v", res)
			}
			w.clean(t, "by bad input")
		})
	}
	w.setIDs(t, "ovn-k8s-mtu=big")
	defer w.setIDs(t, "ovn-k8s-mtu=1400")
	if res := s.call(t, run{command: "ADD"}); res.Code != 7 || !strings.Contains(res.Details, `"big"`) {
		t.Errorf("a bad setting: %+v", res)
	}
	s.del(t)
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

// After an upgrade there may be ports without our marks.
func testDelOfTheOriginals(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	foreign := "vm" + s.host()[:8]
	w.vsctl(t, "--", "add-port", "br-int", s.host(), "--", "set", "Interface", s.host(), "external_ids:attached_mac=\"0a:00:00:00:00:01\"", "external_ids:iface-id=default_"+s.pod,
		"--", "add-port", "br-int", foreign, "--", "set", "Interface", foreign, "external_ids:attached_mac=\"0a:00:00:00:00:02\"", "external_ids:iface-id=vm")
	s.del(t)
	ports := w.vsctl(t, "list-ports", "br-int")
	if strings.Contains(ports, s.host()) || !strings.Contains(ports, foreign) {
		t.Errorf("after DEL br-int has %s", ports)
	}
	w.vsctl(t, "del-port", foreign)
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

func testGC(t *testing.T, w *world) {
	keep, lose, lost := w.sandbox(t, nil), w.sandbox(t, nil), w.sandbox(t, nil)
	for _, s := range []*sandbox{keep, lose, lost} {
		s.assign(t)
		s.add(t)
	}
	w.vsctl(t, "del-port", lost.host()) // the veth pair only
	w.must(t, w.in("ip", "link", "set", lost.host(), "alias", ""))
	valid := []map[string]string{{"containerID": keep.id, "ifname": "eth0"}}
	if res := keep.call(t, run{command: "GC", conf: map[string]any{"name": "other", "cni.dev/valid-attachments": []any{}}}); res.Code != 0 {
		t.Errorf("%+v", res)
	}
	lose.ping(t, keep.ip4) // of another network
	if res := keep.call(t, run{command: "GC"}); res.Code != 7 {
		t.Errorf("GC without a list: %+v", res)
	}
	if res := keep.call(t, run{command: "GC", conf: map[string]any{"cni.dev/valid-attachments": valid}}); res.Code != 0 {
		t.Errorf("%+v", res)
	}
	keep.ping(t, "10.1.0.1")
	if left := w.traces(t); len(left) != 2 {
		t.Errorf("left by GC:\n%s", strings.Join(left, "\n"))
	}
	if res := keep.call(t, run{command: "GC", conf: map[string]any{"cni.dev/valid-attachments": nil}}); res.Code != 0 {
		t.Errorf("%+v", res)
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
	s.del(t)
	bad := annotated("fast", "20M")
	bad.assign(t)
	if res := bad.call(t, run{command: "ADD"}); res.Code != 7 || !strings.Contains(res.Msg, `kubernetes.io/ingress-bandwidth of the pod is "fast"`) {
		t.Errorf("%+v", res)
	}
}

// stages are effects of an ADD in the order of their appearance.
var stages = []struct {
	name string
	seen func(w *world, s *sandbox) bool
}{
	{"veth pair", func(w *world, s *sandbox) bool {
		return exec.Command("ip", "netns", "exec", w.netns, "test", "-e", "/sys/class/net/"+s.host()).Run() == nil
	}},
	{"address", func(_ *world, s *sandbox) bool {
		out, err := s.exec("ip", "-o", "-4", "addr", "show", "dev", "eth0").Output()
		return err == nil && len(out) > 0
	}},
	{"port", func(w *world, s *sandbox) bool {
		return w.in("ovs-vsctl", "--timeout=5", "get", "Interface", s.host(), "external_ids:sandbox").Run() == nil
	}},
	{"installed", func(w *world, s *sandbox) bool {
		return w.in("ovs-vsctl", "--timeout=5", "get", "Interface", s.host(), "external_ids:ovn-installed").Run() == nil
	}},
}

// interrupt sends a signal once a stage is reached, or after a timeout: short stages are hit by chance.
func interrupt(t *testing.T, s *sandbox, signal syscall.Signal, after func(r *run)) *run {
	t.Helper()
	r := s.start(t, run{command: "ADD"})
	after(r)
	r.signal(t, signal)
	_ = r.cmd.Wait()
	return r
}

func whenSeen(t *testing.T, w *world, s *sandbox, stage int) func(*run) {
	return func(*run) {
		await(t, stages[stage].name, func() bool { return stages[stage].seen(w, s) })
	}
}

// An ADD whose result cannot be written is undone, and the log has the reason: the runtime does not get it.
func testResultNotWritten(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	r := s.start(t, run{command: "ADD", setup: "exec >/dev/full"})
	if err := r.cmd.Wait(); err == nil {
		t.Error("ADD succeeded without a result")
	}
	if text := r.stderr.String(); !strings.Contains(text, "writing the result") {
		t.Errorf("the reason is not on standard error: %s", text)
	}
	if log := w.log(t); !w.served && !strings.Contains(log, "ADD: writing the result") {
		t.Errorf("the reason is not in the log: %s", log)
	}
	w.clean(t, "by an ADD without a result")
}

// SIGTERM undoes everything, even without a DEL.
func testSigterm(t *testing.T, w *world) {
	for i := range stages[:3] {
		s := w.sandbox(t, nil)
		s.annotate(t, s.annotation()) // without logical port: it is never installed
		r := interrupt(t, s, syscall.SIGTERM, whenSeen(t, w, s, i))
		if !strings.Contains(r.stdout.String(), `"code": 11`) {
			t.Errorf("at %s: %s%s", stages[i].name, r.stdout.String(), r.stderr.String())
		}
		w.clean(t, "by SIGTERM at "+stages[i].name)
	}
	for n := range 20 {
		s := w.sandbox(t, nil)
		s.annotate(t, s.annotation())
		interrupt(t, s, syscall.SIGTERM, func(*run) { time.Sleep(time.Duration(n) * 4 * time.Millisecond) })
		w.clean(t, fmt.Sprintf("by SIGTERM after %d ms", n*4))
	}
}

// After kill -9 at any point, DEL or GC removes everything.
func testKill(t *testing.T, w *world) {
	mend := func(s *sandbox, n int, when string) {
		if n%2 == 0 {
			s.del(t)
			w.clean(t, "by DEL after SIGKILL "+when)
			return
		}
		if res := s.call(t, run{command: "GC", conf: map[string]any{"cni.dev/valid-attachments": []any{}}}); res.Code != 0 {
			t.Errorf("GC: %+v", res)
		}
		w.clean(t, "by GC after SIGKILL "+when)
	}
	for i := range stages {
		for n := range 2 {
			s := w.sandbox(t, nil)
			s.assign(t)
			interrupt(t, s, syscall.SIGKILL, whenSeen(t, w, s, i))
			mend(s, n, "at "+stages[i].name)
		}
	}
	for n := range 40 {
		s := w.sandbox(t, nil)
		s.assign(t)
		interrupt(t, s, syscall.SIGKILL, func(*run) { time.Sleep(time.Duration(n) * 2 * time.Millisecond) })
		mend(s, n, fmt.Sprintf("after %d ms", n*2))
	}
	// and ADD continues after a killed one
	s := w.sandbox(t, nil)
	s.assign(t)
	interrupt(t, s, syscall.SIGKILL, whenSeen(t, w, s, 0))
	s.add(t)
	s.ping(t, "10.1.0.1")
	s.del(t)
}

func testMissingStage(t *testing.T, w *world) {
	w.setIDs(t, "ovn-k8s-cni-timeout=4s")
	defer w.setIDs(t, "ovn-k8s-cni-timeout=60s")
	fails := func(s *sandbox, want string) {
		t.Helper()
		if res := s.call(t, run{command: "ADD"}); res.Code != 11 || !strings.Contains(res.Details, want) || !strings.Contains(res.Details, "default/"+s.pod+" after ") {
			t.Errorf("want %q: %+v", want, res)
		}
		w.clean(t, "by a failed ADD")
	}
	unbound := w.sandbox(t, nil)
	unbound.annotate(t, unbound.annotation())
	fails(unbound, "no Port_Binding: is ovn-northd running?")

	s := w.sandbox(t, nil)
	s.assign(t)
	w.stop("ovn-controller")
	fails(s, "has not claimed the Port_Binding: is ovn-controller running?")
	w.stop("ovs-vswitchd")
	fails(s, "is ovs-vswitchd running?")
	w.startVswitchd(t)
	w.startController(t)

	remote := w.central.SB
	w.setIDs(t, "ovn-remote=unix:/nonexistent")
	fails(s, "cannot tell the stage")
	w.setIDs(t, "ovn-remote="+remote, "ovn-k8s-cni-timeout=60s")
	s.add(t)
	s.ping(t, "10.1.0.1")
	s.del(t)
}

func testWithoutOpenVSwitch(t *testing.T, w *world) {
	s, other := w.sandbox(t, nil), w.sandbox(t, nil)
	for _, x := range []*sandbox{s, other} {
		x.assign(t)
		x.add(t)
	}
	w.stop("ovsdb-server")
	if res := other.call(t, run{command: "ADD"}); res.Code != 11 || !strings.Contains(res.Msg+res.Details, "is ovsdb-server running?") {
		t.Errorf("ADD: %+v", res)
	}
	if res := s.call(t, run{command: "STATUS"}); res.Code != 51 {
		t.Errorf("STATUS: %+v", res)
	}
	s.del(t)
	if left := w.traces(t); len(left) != 1 { // the other's
		t.Errorf("left by DEL: %v", left)
	}
	w.must(t, exec.Command("ip", "netns", "del", filepath.Base(s.netns)))
	w.startOVSDB(t)
	if !slices.ContainsFunc(w.traces(t), func(l string) bool { return strings.Contains(l, s.id) }) {
		t.Error("the port should be left in the database")
	}
	await(t, "ovn-controller", func() bool {
		return w.in("ovs-vsctl", "--timeout=5", "get", "Interface", other.host(), "external_ids:ovn-installed").Run() == nil
	})
	other.ping(t, "10.1.0.1")
	other.del(t)
}

// testWithoutIPv6: a kernel without IPv6, as with ipv6.disable=1.
func testWithoutIPv6(t *testing.T, w *world) {
	const setup = "mount -t tmpfs tmpfs /proc/sys/net/ipv6"
	s := w.sandbox(t, nil)
	s.assign(t)
	for _, command := range []string{"ADD", "DEL"} {
		if res := s.call(t, run{command: command, setup: setup}); res.Code != 0 {
			t.Fatalf("%s: %+v", command, res)
		}
		if command == "ADD" {
			s.ping(t, "10.1.0.1")
		}
	}
}

// silent starts a database that accepts connections and reads, but never answers a transaction. It returns its run
// directory.
func (w *world) silent(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("unix", dir+"/db.sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", w.dir+"/db.sock")
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(in, out) }()
			go func() {
				defer in.Close()
				defer out.Close()
				for buffer, deaf := make([]byte, 64<<10), false; ; {
					n, err := in.Read(buffer)
					if err != nil {
						return
					}
					if deaf = deaf || bytes.Contains(buffer[:n], []byte(`"transact"`)); !deaf {
						_, _ = out.Write(buffer[:n])
					}
				}
			}()
		}
	}()
	return dir
}

// testSilentOpenVSwitch: all commands time out, and DEL removes as much as possible.
func testSilentOpenVSwitch(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	s.add(t)
	env := map[string]string{"OVS_RUNDIR": w.silent(t)}
	if w.served {
		w.stopServer(t)
		w.startServer(t, "OVS_RUNDIR="+env["OVS_RUNDIR"])
	}
	runs := map[*run]int{}
	for command, code := range map[string]int{"DEL": 11, "GC": 11, "STATUS": 51} {
		r := s.start(t, run{command: command, env: env, conf: map[string]any{"cni.dev/valid-attachments": []any{}}})
		runs[r] = code
		hung := time.AfterFunc(limit.Of(time.Minute), func() { _ = r.cmd.Process.Kill() })
		defer hung.Stop()
	}
	for r, code := range runs {
		if res := r.end(t); res.Code != code || !strings.Contains(res.Details, "no answer within 25s: is ovsdb-server stopped or overloaded?") {
			t.Errorf("%s: %+v", r.command, res)
		}
	}
	if out, err := w.in("ip", "link", "show", s.host()).CombinedOutput(); err == nil {
		t.Errorf("left by DEL: %s", out)
	}
	if w.served {
		w.stopServer(t)
		w.startServer(t)
	}
	s.del(t)
}

func testSecrets(t *testing.T, w *world) {
	w.setIDs(t, "k8s-api-token="+canary, "ovn-k8s-cni-timeout=4s")
	defer w.setIDs(t, "k8s-api-token="+w.kube.Token, "ovn-k8s-cni-timeout=60s")
	s := w.sandbox(t, nil)
	s.assign(t)
	r := s.start(t, run{command: "ADD"})
	res := r.end(t)
	// The server's watch began with a valid token.
	if !w.served && (res.Code != 11 || !strings.Contains(res.Details, "Unauthorized")) || w.served && res.Code != 0 {
		t.Errorf("%+v", res)
	}
	defer s.del(t)
	for name, text := range map[string]string{"output": r.stdout.String(), "standard error": r.stderr.String(), "log": w.log(t)} {
		for _, secret := range []string{canary, w.kube.Token} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s has a secret", name)
			}
		}
	}
}
