package vswitch_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// Lists of interfaces share rows with the followed database: a change makes another row, and a former list stays the same.
func TestInterfacesOfFormerLists(t *testing.T) {
	n := newNode(t)
	n.bridge("br-int")
	s := n.connect()
	attach := func(id string) {
		t.Helper()
		if err := s.AttachPort(t.Context(), vswitch.PodPort{Bridge: "br-int", Name: "p1", ExternalIDs: map[string]string{names.IfaceID: id}}); err != nil {
			t.Fatal(err)
		}
	}
	list := func() vswitch.Interface {
		t.Helper()
		all, err := s.Interfaces(t.Context())
		if err != nil || len(all) != 2 || all[1].Name != "p1" || all[1].Bridge != "br-int" {
			t.Fatal(all, err)
		}
		return all[1]
	}
	attach("default_web-1")
	former := list()
	if want := map[string]string{names.IfaceID: "default_web-1"}; !reflect.DeepEqual(former.ExternalIDs, want) {
		t.Fatalf("%+v", former)
	}
	attach("default_web-2")
	if now := list(); now.ExternalIDs[names.IfaceID] != "default_web-2" || former.ExternalIDs[names.IfaceID] != "default_web-1" {
		t.Errorf("now %+v, former %+v", now, former)
	}
}

// An ADD of a pod looks for its earlier ports: it copies no row of the tunnels of a large cluster, or their number would be
// its price.
func TestDetachCopiesNoTunnels(t *testing.T) {
	n := newNode(t)
	const hosts = 300
	n.tunnels(hosts)
	s := n.connect()
	made := testing.AllocsPerRun(10, func() {
		if gone, err := s.DetachWhere(t.Context(), nobody); len(gone) > 0 || err != nil {
			t.Fatal(gone, err)
		}
	})
	if made > hosts {
		t.Errorf("%.0f allocations beside %d tunnels", made, hosts)
	}
}

// The condition of a list is asked for each interface, and the list has the bridges of some.
func TestInterfacesWhere(t *testing.T) {
	n := newNode(t)
	n.tunnels(3)
	n.vsctl("--no-wait", "add-br", "br-ex", "--", "add-bond", "br-ex", "bond", "e0", "e1")
	s := n.connect()
	asked := 0
	some, err := s.InterfacesWhere(t.Context(), func(i vswitch.Interface) bool {
		asked++
		return i.Bridge == "" && slices.Contains([]string{"e1", "e0", "ovn-000001", "br-ex"}, i.Name)
	})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, i := range some {
		got += fmt.Sprintf("%s/%s/%s ", i.Bridge, i.Name, i.Type)
	}
	if want := "br-ex/br-ex/internal br-ex/e0/ br-ex/e1/ br-int/ovn-000001/geneve "; got != want || asked != 7 {
		t.Errorf("asked for %d: %s, want %s", asked, got, want)
	}
}

// Ports are detached although the connection is lost between reading interfaces and their ports.
func TestDetachOverARestart(t *testing.T) {
	n := newNode(t)
	n.bridge("br-int")
	s := n.connect()
	if err := s.AttachPort(t.Context(), vswitch.PodPort{Bridge: "br-int", Name: "p1", ExternalIDs: map[string]string{names.IfaceID: "default_web"}}); err != nil {
		t.Fatal(err)
	}
	lost := false
	gone, err := s.DetachWhere(n.ctx(), func(i vswitch.Interface) bool {
		if !lost {
			lost = true
			stop(&n.db)
			n.await(func() bool { return s.Refresh(n.ctx()) != nil })
			n.startDB()
		}
		return nobody(i)
	})
	if err != nil || !slices.Equal(gone, []string{"p1"}) {
		t.Errorf("detached %v, %v", gone, err)
	}
}

// The NICs of a bridge are devices of the host there, without ports of pods and virtual machines.
func TestNICs(t *testing.T) {
	all := []vswitch.Interface{
		{Name: "br0", Bridge: "br0", Type: "internal"}, {Name: "eth0", Bridge: "br0"}, {Name: "eth1", Bridge: "br0", Type: "system"}, {Name: "eth2", Bridge: "br1"}, {Name: "free"},
		{Name: "patch", Bridge: "br0", Type: "patch"}, {Name: "vnet0", Bridge: "br0", ExternalIDs: map[string]string{names.IfaceID: "vm"}},
	}
	for bridge, want := range map[string][]string{"br0": {"eth0", "eth1"}, "br1": {"eth2"}, "br2": nil, "": nil} {
		if got := vswitch.NICs(all, bridge); !slices.Equal(got, want) {
			t.Errorf("%s: got %v", bridge, got)
		}
	}
}
