package vswitch_test

import (
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/ovsdb/vswitch/ovncontroller"
)

// An operator's keys stay, and are back afterwards.
func TestOwn(t *testing.T) {
	n := newNode(t)
	s := n.connect().Controller()
	ids := func() string { return n.vsctl("get", "Open_vSwitch", ".", "external_ids") }
	n.vsctl("set", "Open_vSwitch", ".", `external_ids:ovn-remote="tcp:192.0.2.1:6642"`)
	before := ids()
	want := map[string]string{"ovn-remote": "ssl:192.0.2.2:6642", "hostname": "n1"}
	planned, err := s.PlanOwn(t.Context(), want)
	if err != nil || ids() != before {
		t.Errorf("the plan has changed something: %v, %s", err, ids())
	}
	changes, err := s.Own(t.Context(), want)
	if !slices.Equal(changes, planned) {
		t.Errorf("%q, planned %q", changes, planned)
	}
	if err != nil || !slices.Equal(changes, []string{
		`set external_ids:hostname=n1 (was "")`, `set external_ids:ovn-remote=ssl:192.0.2.2:6642 (was "tcp:192.0.2.1:6642")`,
	}) {
		t.Errorf("%q, %v", changes, err)
	}
	if got := ids(); !strings.Contains(got, `ovn-remote="ssl:192.0.2.2:6642"`) || !strings.Contains(got, "hostname=n1") {
		t.Error(got)
	}
	next := n.vsctl("get", "Open_vSwitch", ".", "next_cfg")
	if changes, err := s.Own(t.Context(), want); err != nil || len(changes) > 0 || n.vsctl("get", "Open_vSwitch", ".", "next_cfg") != next {
		t.Errorf("repeated: %q, %v", changes, err)
	}
	if _, err := s.Own(t.Context(), nil); err != nil || ids() != before {
		t.Errorf("%v: %s, before %s", err, ids(), before)
	}
}

func TestOwnTLS(t *testing.T) {
	n := newNode(t)
	s := n.connect().Controller()
	rows := func() string {
		return n.vsctl("--bare", "--columns=private_key,certificate,ca_cert,bootstrap_ca_cert", "list", "SSL")
	}
	files := ovncontroller.TLS{PrivateKey: "/k", Certificate: "/c", CA: "/ca"}
	own := func(f *ovncontroller.TLS, changes bool, want string) {
		t.Helper()
		planned, err := s.PlanTLS(t.Context(), f)
		if err != nil || len(planned) > 0 != changes {
			t.Errorf("plan: %q, %v", planned, err)
		}
		if changed, err := s.OwnTLS(t.Context(), f); err != nil || !slices.Equal(changed, planned) {
			t.Errorf("changed %q, %v, planned %q", changed, err, planned)
		}
		if got := strings.Join(strings.Fields(rows()), " "); got != want {
			t.Errorf("rows %q, want %q", got, want)
		}
	}
	own(nil, false, "")
	own(&files, true, "/k /c /ca false")
	own(&files, false, "/k /c /ca false")
	files.Bootstrap = true
	own(&files, true, "/k /c /ca true")
	own(nil, true, "")
	n.vsctl("set-ssl", "/k2", "/c2", "/ca2")
	own(nil, false, "/k2 /c2 /ca2 false")
	if _, err := s.OwnTLS(t.Context(), &files); err == nil || !strings.Contains(err.Error(), "/k2, /c2 and /ca2") {
		t.Errorf("an operator's: %v", err)
	}
	own(&ovncontroller.TLS{PrivateKey: "/k2", Certificate: "/c2", CA: "/ca2"}, false, "/k2 /c2 /ca2 false")
	own(nil, false, "/k2 /c2 /ca2 false")
	n.vsctl("--", "--bootstrap", "set-ssl", "/k2", "/c2", "/ca2")
	own(&ovncontroller.TLS{PrivateKey: "/k2", Certificate: "/c2", CA: "/ca2"}, false, "/k2 /c2 /ca2 true")
}
