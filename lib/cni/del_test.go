package cni_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// del removes a sandbox's attachment.
func (s *sandbox) del(t *testing.T) {
	t.Helper()
	if res := s.call(t, run{command: "DEL"}); res.Code != 0 {
		t.Errorf("DEL: %+v", res)
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

// After an upgrade there may be ports without our marks.
func testDelOfTheOriginals(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	foreign := "vm" + s.host()[:8]
	// There are no such devices: ovs-vsctl of Open vSwitch 4.0 fails where it waits for them.
	w.vsctl(t, "--no-wait", "--", "add-port", "br-int", s.host(), "--", "set", "Interface", s.host(), "external_ids:attached_mac=\"0a:00:00:00:00:01\"", "external_ids:iface-id=default_"+s.pod,
		"--", "add-port", "br-int", foreign, "--", "set", "Interface", foreign, "external_ids:attached_mac=\"0a:00:00:00:00:02\"", "external_ids:iface-id=vm")
	s.del(t)
	ports := w.vsctl(t, "list-ports", "br-int")
	if strings.Contains(ports, s.host()) || !strings.Contains(ports, foreign) {
		t.Errorf("after DEL br-int has %s", ports)
	}
	w.vsctl(t, "del-port", foreign)
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
