package hostids

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/names"
)

// apply makes the changes of Plan as an OVSDB server does: it removes a key only with that value, and inserts a key only
// if it is absent.
func apply(t *testing.T, ids, want map[string]string) map[string]string {
	t.Helper()
	out := maps.Clone(ids)
	remove, insert := Plan(ids, want)
	for k, v := range remove {
		if out[k] != v {
			t.Fatalf("remove %s=%s from %v", k, v, ids)
		}
		delete(out, k)
	}
	for k, v := range insert {
		if _, there := out[k]; there || v == "" {
			t.Fatalf("insert %s=%q into %v", k, v, ids)
		}
		out[k] = v
	}
	return out
}

func TestPlan(t *testing.T) {
	before := map[string]string{"system-id": "c1", "ovn-remote": "tcp:old:6642", "hostname": "n1"}
	want := map[string]string{"ovn-remote": "tcp:new:6642", "hostname": "n1", "ovn-encap-ip": "192.0.2.1"}
	ids := apply(t, before, want)
	if diff := cmp.Diff(map[string]string{
		"system-id": "c1", "ovn-remote": "tcp:new:6642", "hostname": "n1", "ovn-encap-ip": "192.0.2.1",
		names.FormerIDs: `{"ovn-encap-ip":{"set":"192.0.2.1"},"ovn-remote":{"former":"tcp:old:6642","set":"tcp:new:6642"}}`,
	}, ids); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if remove, insert := Plan(ids, want); len(remove)+len(insert) > 0 {
		t.Errorf("repeated: remove %v, insert %v", remove, insert)
	}
	if diff := cmp.Diff(before, Given(ids)); diff != "" {
		t.Errorf("given (-want +got):\n%s", diff)
	}
	want["ovn-remote"] = "tcp:third:6642"
	ids = apply(t, ids, want)
	ids["ovn-encap-ip"] = "192.0.2.9" // an operator
	if got := Given(ids); got["ovn-encap-ip"] != "192.0.2.9" || got["ovn-remote"] != "tcp:old:6642" {
		t.Errorf("given: %v", got)
	}
	if diff := cmp.Diff(map[string]string{"ovn-remote": "tcp:third:6642"}, Own(ids)); diff != "" {
		t.Errorf("own (-want +got):\n%s", diff)
	}
	before["ovn-encap-ip"] = "192.0.2.9"
	if diff := cmp.Diff(before, apply(t, ids, nil)); diff != "" {
		t.Errorf("taken back (-want +got):\n%s", diff)
	}
}

// Whatever is wanted one after the other: at the end an operator's values are back, and each state is as wanted.
func TestEverythingIsTakenBack(t *testing.T) {
	keys, values := []string{"a", "b", "c", "d"}, []string{"1", "2", "3"}
	for range 10000 {
		random := func() map[string]string {
			m := map[string]string{}
			for _, k := range keys {
				if i := rand.IntN(len(values) + 2); i < len(values) {
					m[k] = values[i]
				}
			}
			return m
		}
		before := random()
		ids := maps.Clone(before)
		for range 4 {
			want := random()
			ids = apply(t, ids, want)
			for k, v := range want {
				if ids[k] != v {
					t.Fatalf("want %v, have %v", want, ids)
				}
			}
			if given := Given(ids); !maps.Equal(given, before) {
				t.Fatalf("before %v, given %v: %v", before, given, ids)
			}
		}
		if after := apply(t, ids, nil); !maps.Equal(after, before) {
			t.Fatalf("before %v, after %v", before, after)
		}
	}
}

func TestDamagedRecord(t *testing.T) {
	for _, text := range []string{"", "x", "[]", `{"a":1}`, "null"} {
		ids := map[string]string{"a": "1", names.FormerIDs: text}
		if text == "" {
			delete(ids, names.FormerIDs)
		}
		if got := apply(t, ids, nil); !maps.Equal(got, map[string]string{"a": "1"}) {
			t.Errorf("%q: %v", text, got)
		}
	}
}
