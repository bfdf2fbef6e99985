package vswitch_test

import (
	"reflect"
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
