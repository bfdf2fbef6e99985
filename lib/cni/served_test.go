package cni_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/cni/protocol"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/reaper"
)

// TestServer runs the shim with the CNI server on a real node: the tests of the stand-alone plugin, and its own.
// Check 8 of the issue about ovnkube: results and errors are those of the stand-alone plugin, byte for byte.
func TestServer(t *testing.T) {
	runParts(t, newWorld(t, true), append(parts(), []part{
		{"SameBytes", testSameBytes},
		{"SameBytesOfRandomInput", testSameBytesOfRandomInput},
		{"SameStatus", testSameStatus},
		{"AC67_NewSandbox", testAC67},
		{"Questions", testQuestions},
		{"Hundred", testHundred},
		{"DelEndsAdd", testDelEndsAdd},
		{"ServerAway", testServerAway},
		{"WithoutAPIServer", testWithoutAPIServer},
		{"RestartDuringAdds", testRestartDuringAdds},
		{"GracefulEnd", testGracefulEnd},
	}...))
}

// startServer starts the CNI server, with changes of its environment, and waits until it serves.
func (w *world) startServer(t *testing.T, env ...string) {
	t.Helper()
	p, err := reaper.Start(w.in, "env", append(env, w.server, "node1", w.dir+"/cni.log", w.dir+"/server.pid")...)
	if err != nil {
		t.Fatal(err)
	}
	w.procs["server"] = p
	await(t, "the CNI server", func() bool {
		c, err := net.Dial("unix", protocol.Socket)
		if err != nil {
			if p.Err() != nil {
				t.Fatal(p.Err())
			}
			return false
		}
		_ = c.Close()
		return true
	})
}

// stopServer ends the CNI server as a service manager does, and waits for its end.
func (w *world) stopServer(t *testing.T) {
	t.Helper()
	w.endServer(t)
	<-w.procs["server"].Done()
	delete(w.procs, "server")
}

// endServer tells the CNI server to end.
func (w *world) endServer(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "server.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// durations differ between two calls.
var durations = regexp.MustCompile(`after [0-9.]+m?s`)

// same calls the stand-alone plugin and then the shim, and compares all that they print. It returns the latter's result.
func (s *sandbox) same(t *testing.T, r run) result {
	t.Helper()
	print := func(program string) (result, string) {
		r.program = program
		out := s.start(t, r)
		res := result{}
		if r.command != "" { // else it prints for people
			res = out.end(t)
		} else if err := out.cmd.Wait(); err != nil {
			t.Error(err)
		}
		return res, durations.ReplaceAllString(fmt.Sprintf("%s\nstderr %s\nerror %v", out.stdout.String(), out.stderr.String(), out.err), "after TIME")
	}
	_, want := print(s.w.alone)
	res, got := print(s.w.bin)
	if got != want {
		t.Errorf("%s %v %.300s:\nstand-alone %.2000s\nserver      %.2000s", r.command, r.env, r.stdin, want, got)
	}
	return res
}

// testSameBytes: every command, result and error.
func testSameBytes(t *testing.T, w *world) {
	s := w.sandbox(t, func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/ingress-bandwidth": "10M"} })
	s.ip6 = "fd01::dd"
	s.assign(t)
	for _, v := range []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		if res := s.same(t, run{command: "ADD", version: v}); res.Code != 0 || res.CNIVersion != v {
			t.Errorf("ADD in version %s: %+v", v, res)
		}
		s.same(t, run{command: "VERSION", version: v})
	}
	s.same(t, run{command: ""})
	for _, test := range badInputs() {
		if test.run.command == "" {
			test.run.command = "ADD"
		}
		for _, command := range []string{test.run.command, "CHECK", "STATUS", "GC"} {
			test.run.command = command
			s.same(t, test.run)
		}
	}
	for _, variable := range []string{"CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH", "CNI_ARGS"} {
		for _, command := range []string{"ADD", "CHECK", "GC", "STATUS"} {
			if variable != "CNI_COMMAND" {
				s.same(t, run{command: command, env: map[string]string{variable: ""}})
			}
		}
	}
	for _, args := range []string{";;=;K8S_POD_NAME==", "IgnoreUnknown=0;x=y", "K8S_POD_NAME", "CommonArgs=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0",
		"K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + strings.Repeat("y", 100_000)} {
		s.same(t, run{command: "ADD", env: map[string]string{"CNI_ARGS": args}})
		s.same(t, run{command: "DEL", env: map[string]string{"CNI_ARGS": args, "CNI_CONTAINERID": "none"}})
	}
	huge := strings.Repeat("x", 4<<20)
	for _, r := range []run{
		{command: "ADD", conf: map[string]any{"huge": huge}}, {command: "ADD", stdin: huge}, {command: "ADD", stdin: strings.Repeat("[", 1<<20)},
		{command: "ADD", stdin: `{"cniVersion":"1.1.0","name":"ovn-k8s","ipam":5}`}, {command: "CHECK", stdin: `{"cniVersion":"1.1.0","name":"n","prevResult":[]}`},
		{command: "ADD", env: map[string]string{"CNI_IFNAME": "net1"}}, {command: "CHECK"}, {command: "CHECK", version: "0.3.1"}, {command: "GC", version: "1.0.0"},
		{command: "GC"}, {command: "GC", conf: map[string]any{"cni.dev/valid-attachments": 5}}, {command: "STATUS", version: "1.0.0"},
	} {
		s.same(t, r)
	}
	added := s.start(t, run{command: "ADD"})
	added.end(t)
	check := run{command: "CHECK", stdin: `{"cniVersion":"1.1.0","name":"ovn-k8s","type":"x","prevResult":` + added.stdout.String() + `}`}
	if res := s.same(t, check); res.Code != 0 {
		t.Errorf("CHECK: %+v", res)
	}
	w.must(t, s.exec("ip", "link", "set", "eth0", "down"))
	if res := s.same(t, check); res.Code != 100 {
		t.Errorf("CHECK of a damaged interface: %+v", res)
	}
	w.setIDs(t, "ovn-k8s-mtu=big")
	for _, command := range []string{"ADD", "CHECK", "STATUS"} {
		s.same(t, run{command: command, stdin: check.stdin})
	}
	w.setIDs(t, "ovn-k8s-mtu=1400", "ovn-k8s-cni-timeout=1s")
	other := *s
	other.uid = "11111111-2222-3333-4444-555555555555"
	for _, x := range []*sandbox{&other, w.sandbox(t, nil)} { // another pod, and one without an annotation
		if res := x.same(t, run{command: "ADD"}); res.Code != 11 {
			t.Errorf("ADD of a pod without addresses: %+v", res)
		}
	}
	bad := w.sandbox(t, func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/egress-bandwidth": "5"} })
	bad.same(t, run{command: "ADD"})
	unbound := w.sandbox(t, nil) // without a logical port
	unbound.annotate(t, unbound.annotation())
	unbound.same(t, run{command: "ADD"})
	w.setIDs(t, "ovn-k8s-cni-timeout=60s")
	s.same(t, run{command: "DEL"})
	s.same(t, check)
	s.same(t, run{command: "GC", conf: map[string]any{"cni.dev/valid-attachments": []any{}}})
}

// testSameBytesOfRandomInput: the inputs of the fuzz tests, drawn.
func testSameBytesOfRandomInput(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	w.setIDs(t, "ovn-k8s-cni-timeout=1s")
	defer w.setIDs(t, "ovn-k8s-cni-timeout=60s")
	random := rand.New(rand.NewPCG(1, 2))
	spoil := func(text string) string {
		b := []byte(text)
		for range random.IntN(3) {
			i := random.IntN(len(b))
			b[i] = []byte(`{}[]",:;=/.0aZ_- `)[random.IntN(17)]
		}
		return string(b)
	}
	for range 60 {
		command := []string{"ADD", "ADD", "DEL", "CHECK", "GC", "STATUS"}[random.IntN(6)]
		s.same(t, run{
			command: command,
			stdin:   spoil(`{"cniVersion":"1.1.0","name":"ovn-k8s","type":"x","cni.dev/valid-attachments":[{"containerID":"a","ifname":"b"}],"prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"/x"}],"ips":[{"interface":0,"address":"10.1.1.3/24"}]}}`),
			env:     map[string]string{"CNI_IFNAME": spoil("eth0"), "CNI_ARGS": spoil("K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + s.pod)},
		})
	}
	if res := s.call(t, run{command: "GC", conf: map[string]any{"cni.dev/valid-attachments": []any{}}}); res.Code != 0 {
		t.Errorf("GC: %+v", res)
	}
}

// testSameStatus: STATUS for each problem of a host.
func testSameStatus(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	await(t, "STATUS is fine", func() bool { return s.call(t, run{command: "STATUS"}).Code == 0 })
	s.same(t, run{command: "STATUS"})
	for _, key := range []string{"k8s-api-server", "ovn-remote"} {
		value := w.vsctl(t, "get", "Open_vSwitch", ".", "external_ids:"+key)
		w.vsctl(t, "remove", "Open_vSwitch", ".", "external_ids", key)
		for _, command := range []string{"STATUS", "ADD"} {
			if res := s.same(t, run{command: command, env: map[string]string{"CNI_NETNS": "/nonexistent"}}); res.Code == 0 {
				t.Errorf("%s without %s succeeds", command, key)
			}
		}
		w.setIDs(t, key+"="+strings.Trim(value, `"`))
	}
	w.stop("ovn-controller")
	if res := s.same(t, run{command: "STATUS"}); res.Code != 51 {
		t.Errorf("without ovn-controller: %+v", res)
	}
	w.stop("ovsdb-server")
	for _, command := range []string{"STATUS", "ADD", "DEL", "GC"} {
		s.same(t, run{command: command, conf: map[string]any{"cni.dev/valid-attachments": []any{}}})
	}
	w.startOVSDB(t)
	w.startController(t)
	await(t, "STATUS is fine again", func() bool { return s.call(t, run{command: "STATUS"}).Code == 0 })
}

// AC-67: only the newest sandbox of a pod has its logical port.
func testAC67(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	s.add(t)
	s.renew(t)
	s.add(t)
	ports := w.vsctl(t, "--columns=name", "-d", "bare", "--no-headings", "find", "Interface", "external_ids:iface-id=default_"+s.pod)
	if ports != s.host() {
		t.Errorf("the logical port has the interfaces %s, want %s", ports, s.host())
	}
	s.del(t)
}

// testHundred: 100 ADDs at once, fewer on slow machines.
func testHundred(t *testing.T, w *world) {
	all := w.crowd(t, limit.Number(100))
	var wait sync.WaitGroup
	for _, s := range all {
		wait.Go(func() {
			if res := s.call(t, run{command: "ADD"}); res.Code != 0 {
				t.Errorf("%+v", res)
				return
			}
			s.ping(t, "10.1.0.1") // the first packet
		})
	}
	wait.Wait()
	w.remove(t, all)
}

// crowd makes sandboxes with addresses.
func (w *world) crowd(t *testing.T, n int) (all []*sandbox) {
	t.Helper()
	var rows []string
	for range n {
		s := w.sandbox(t, nil)
		all = append(all, s)
		rows = append(append(rows, "--"), s.port()...)
		s.annotate(t, s.annotation())
	}
	w.nbctl(t, rows[1:]...)
	return all
}

// remove calls DEL for sandboxes, all at once.
func (w *world) remove(t *testing.T, all []*sandbox) {
	t.Helper()
	var wait sync.WaitGroup
	for _, s := range all {
		wait.Go(func() { s.del(t) })
	}
	wait.Wait()
}

// testDelEndsAdd: DEL does not wait for the annotation of the same container's ADD, and leaves nothing, whatever ADD waits for.
func testDelEndsAdd(t *testing.T, w *world) {
	for n := range 20 {
		s := w.sandbox(t, nil)
		s.annotate(t, s.annotation()) // without a logical port it is never installed
		adding := s.start(t, run{command: "ADD"})
		await(t, "the veth pair", func() bool { return stages[0].seen(w, s) })
		time.Sleep(time.Duration(n) * time.Millisecond)
		s.del(t)
		w.clean(t, fmt.Sprintf("by DEL %d ms after the veth pair of ADD", n))
		if res := adding.end(t); res.Code != 11 {
			t.Errorf("ADD, %d ms after its veth pair: %+v", n, res)
		}
		w.clean(t, "by ADD after DEL")
	}
}

// testServerAway: without a server ADD waits, and so does DEL while a part of the container is left. STATUS waits as long as a
// restart may take. The other commands answer.
func testServerAway(t *testing.T, w *world) {
	s, next, rebooted := w.sandbox(t, nil), w.sandbox(t, nil), w.sandbox(t, nil)
	for _, x := range []*sandbox{s, next, rebooted} {
		x.assign(t)
	}
	s.add(t)
	rebooted.add(t)
	w.must(t, exec.Command("ip", "netns", "del", filepath.Base(rebooted.netns)))
	await(t, "the end of the device", func() bool { return w.in("ip", "link", "show", rebooted.host()).Run() != nil })
	w.stopServer(t)
	if res := s.call(t, run{command: "STATUS"}); res.Code != 50 || !strings.Contains(res.Details, protocol.Socket) || !strings.Contains(res.Details, "is ovnkube running on this host?") {
		t.Errorf("STATUS: %+v", res)
	}
	s.same(t, run{command: "VERSION"})
	next.del(t)     // nothing is left of it
	rebooted.del(t) // its port has no device: a later DEL removes it
	if res := s.call(t, run{command: "DEL", env: map[string]string{"CNI_IFNAME": "net1"}}); res.Code != 0 {
		t.Errorf("DEL of an interface that was never made: %+v", res)
	}
	w.silence(t, func(asked func()) {
		given := s.start(t, run{command: "DEL"})
		asked() // it handles signals by now
		given.signal(t, syscall.SIGTERM)
		left := fmt.Sprintf("Left of the container: interface %s, port %s of br-int", s.host(), s.host())
		if res := given.end(t); res.Code != 11 || !strings.Contains(res.Details, left) {
			t.Errorf("DEL without a server: %+v", res)
		}
	})
	deleting, adding, asking := s.start(t, run{command: "DEL"}), next.start(t, run{command: "ADD"}), s.start(t, run{command: "STATUS"})
	time.Sleep(time.Second) // as long as a restart takes
	w.startServer(t)
	if res := asking.end(t); res.Code != 0 {
		t.Errorf("STATUS over a restart: %+v", res)
	}
	if res := deleting.end(t); res.Code != 0 {
		t.Errorf("DEL: %+v", res)
	}
	if res := adding.end(t); res.Code != 0 {
		t.Errorf("ADD: %+v", res)
	}
	next.ping(t, "10.1.0.1")
	next.del(t)
}

// testWithoutAPIServer: the server starts without an API server. Otherwise the Node would be NotReady when that returns, before
// the server has the list of pods. A refused token is another matter.
func testWithoutAPIServer(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	url := strings.Trim(w.vsctl(t, "get", "Open_vSwitch", ".", "external_ids:k8s-api-server"), `"`)
	for _, test := range []struct {
		name, setting string
		code          int
		want          string
	}{
		{"without an API server", "k8s-api-server=https://127.0.0.1:1", 0, ""},
		{"with a refused token", "k8s-api-token=" + canary, 50, "the API server does not list them: failed to list"},
	} {
		w.setIDs(t, test.setting)
		w.stopServer(t)
		w.startServer(t)
		res := s.call(t, run{command: "STATUS"})
		if test.code != 0 { // the server may not have asked yet
			await(t, "a failure "+test.name, func() bool { res = s.call(t, run{command: "STATUS"}); return res.Code != 0 })
		}
		if res.Code != test.code || !strings.Contains(res.Details, test.want) {
			t.Errorf("STATUS %s: %+v", test.name, res)
		}
		w.setIDs(t, "k8s-api-server="+url, "k8s-api-token="+w.kube.Token)
	}
	w.stopServer(t)
	w.startServer(t)
	s.assign(t)
	s.add(t)
	s.del(t)
}

// silence calls f with a server that ends connections without an answer. asked waits for a connection.
func (w *world) silence(t *testing.T, f func(asked func())) {
	t.Helper()
	l, err := net.Listen("unix", protocol.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	f(func() {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	})
}

// testRestartDuringAdds: no ADD fails while the server is restarted, by SIGTERM or SIGKILL.
func testRestartDuringAdds(t *testing.T, w *world) {
	for _, kill := range []bool{false, true} {
		all := w.crowd(t, limit.Number(40))
		var wait sync.WaitGroup
		for i, s := range all {
			wait.Go(func() {
				if res := s.call(t, run{command: "ADD"}); res.Code != 0 {
					t.Errorf("ADD: %+v", res)
					return
				}
				s.ping(t, "10.1.0.1")
			})
			if i != len(all)/2 {
				continue
			}
			await(t, "an ADD that runs", func() bool { return stages[0].seen(w, all[0]) })
			if kill {
				w.stop("server")
			} else {
				w.stopServer(t)
			}
			w.startServer(t)
		}
		wait.Wait()
		w.remove(t, all)
		w.clean(t, "by DEL after a restart")
	}
}

// testGracefulEnd: an ADD that takes longer than the end of the server is undone, and the next server has it from the start.
func testGracefulEnd(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.annotate(t, s.annotation())
	adding := s.start(t, run{command: "ADD"})
	await(t, "the port", func() bool { return stages[2].seen(w, s) })
	w.stopServer(t)
	w.clean(t, "by a server that has ended")
	w.nbctl(t, s.port()...)
	w.startServer(t)
	if res := adding.end(t); res.Code != 0 {
		t.Errorf("ADD: %+v", res)
	}
	s.ping(t, "10.1.0.1")
	s.del(t)
}
