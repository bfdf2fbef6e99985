package config

import (
	"strings"
	"testing"
)

func TestCheckDatapath(t *testing.T) {
	has := func(yes bool) func() (bool, error) { return func() (bool, error) { return yes, nil } }
	both := []string{"netdev", "system"}
	for _, tt := range []struct {
		kind    string
		offered []string
		module  bool
		want    string // a part of the error
	}{
		{"netdev", []string{"netdev"}, false, ""},
		{"system", both, true, ""},
		{"", nil, true, ""},
		{"", both, false, "kernel lacks the module openvswitch"},
		{"system", []string{"netdev"}, false, "kernel lacks the module openvswitch"},
		{"system", []string{"netdev"}, true, "ovs-vswitchd runs with --disable-system"},
	} {
		err := CheckDatapath(tt.kind, tt.offered, has(tt.module))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	for _, tt := range []struct {
		kind, encap string
		module      bool
		want        string
	}{
		{"netdev", "geneve", false, ""}, {"system", "stt", false, ""}, {"system", "geneve", true, ""},
		{"", "geneve", false, "kernel lacks the module geneve"}, {"system", "geneve,vxlan", false, "modprobe geneve"},
	} {
		err := Config{EncapType: tt.encap}.CheckGeneve(tt.kind, has(tt.module))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
