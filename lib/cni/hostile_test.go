package cni_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"ovn-k8s/lib/names"
)

// Runtimes choose containers' IDs. Host ends are named after the first 15 characters, perhaps the same as of another
// container, or a device of the host.
func testIDsThatBeginAlike(t *testing.T, w *world) {
	var all []*sandbox
	for i := range 3 {
		s := w.sandbox(t, nil)
		s.assign(t)
		s.id = fmt.Sprintf("test-container-number-%d", i)
		all = append(all, s)
	}
	first := all[0]
	first.add(t)
	var adding sync.WaitGroup
	for _, s := range all[1:] {
		adding.Go(func() { s.add(t) })
	}
	adding.Wait()
	first.ping(t, all[1].ip4)
	for _, s := range all {
		s.ping(t, "10.1.0.1")
		s.add(t) // again
	}
	first.del(t)
	for _, s := range all[1:] {
		s.add(t) // by its current name
		s.ping(t, "10.1.0.1")
	}
	for _, s := range all[1:] {
		s.del(t)
	}
	for _, device := range []string{"br-int", "lo"} {
		s := w.sandbox(t, nil)
		s.assign(t)
		s.id = device
		before := w.must(t, w.in("ip", "-o", "link", "show", device))
		if res := s.call(t, run{command: "ADD"}); res.Code != 4 || !strings.Contains(res.Details, device+" on the host") {
			t.Errorf("ADD: %+v", res)
		}
		s.del(t)
		if after := w.must(t, w.in("ip", "-o", "link", "show", device)); after != before {
			t.Errorf("before %s\nafter  %s", before, after)
		}
	}
}

// A user with permission to patch pods gives addresses to a pod with the port name of a gateway's NIC: NAMESPACE_POD
// equals NIC_GATEWAY. The watcher would not.
func testPodNamedAsANIC(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	ids := "external-ids:iface-id=" + names.PodPort("default", s.pod)
	// The datapath of the kernel may be missing: ovs-vsctl of Open vSwitch 4.0 fails where it waits for it.
	w.vsctl(t, "--no-wait", "add-br", "br-gw", "--", "set", "Interface", "br-gw", ids, "external-ids:"+names.GatewayTag+"=gw1")
	if res := s.call(t, run{command: "ADD"}); res.Code == 0 || !strings.Contains(res.Details, "is that of the gateway's NIC br-gw") {
		t.Errorf("ADD: %+v", res)
	}
	s.del(t)
	w.vsctl(t, "del-br", "br-gw")
	w.clean(t, "by DEL after a refused ADD")
}

// The plugin works without space for its log.
func testFullDisk(t *testing.T, w *world) {
	for _, file := range []string{"/dev/full", "/nowhere/cni.log", "/etc"} {
		w.setIDs(t, "ovn-k8s-log-path="+file)
		s := w.sandbox(t, nil)
		s.assign(t)
		s.add(t)
		s.del(t)
	}
	w.setIDs(t, "ovn-k8s-log-path="+w.dir+"/cni.log")
}

// A runtime's input may be huge.
func testHugeInput(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	huge := strings.Repeat("x", 4<<20)
	if res := s.call(t, run{command: "ADD", conf: map[string]any{"name": "ovn-k8s", "huge": huge}}); res.Code != 0 {
		t.Errorf("a huge configuration: %+v", res)
	}
	s.del(t)
	if res := s.call(t, run{command: "ADD", stdin: huge}); res.Code != 6 || len(res.Msg+res.Details) > 500 {
		t.Errorf("huge nonsense: %d, %.300s", res.Code, res.Msg+res.Details)
	}
	if res := s.call(t, run{command: "ADD", stdin: strings.Repeat("[", 1<<20)}); res.Code != 6 {
		t.Errorf("a deep one: %+v", res)
	}
	if res := s.call(t, run{command: "ADD", env: map[string]string{"CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + strings.Repeat("y", 100_000)}}); res.Code != 4 || len(res.Msg+res.Details) > 1000 {
		t.Errorf("a huge name: %d, %d characters", res.Code, len(res.Msg+res.Details))
	}
	if _, err := os.Stat("/nowhere"); err == nil {
		t.Error("something made /nowhere")
	}
}

// ADD and DEL of one container at the same time, as by a restarted runtime: a later DEL leaves nothing, and a later
// ADD works.
func testAddAndDelAtOnce(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	for range 3 {
		var calls sync.WaitGroup
		for i := range 4 {
			calls.Go(func() {
				if i%2 == 0 {
					s.call(t, run{command: "ADD"})
				} else {
					s.del(t)
				}
			})
		}
		calls.Wait()
		s.del(t)
		w.clean(t, "by DEL after ADD and DEL at once")
	}
	s.add(t)
	s.ping(t, "10.1.0.1")
	s.del(t)
}
