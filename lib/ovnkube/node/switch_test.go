package node

import (
	"testing"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A tunnel to a joining host causes no pass, nor does a pod, unless passes wait for pods.
func TestInterfacesOfPasses(t *testing.T) {
	for _, c := range []struct {
		pods bool
		want string
	}{{false, "k8s-n1 patch "}, {true, "k8s-n1 patch pod "}} {
		all := []vswitch.Interface{
			{Name: "ovn-1", Type: "geneve"}, {Name: "k8s-n1", Type: "internal"}, {Name: "ovn-2", Type: "vxlan"}, {Name: "patch", Type: "patch"},
			{Name: "pod", ExternalIDs: map[string]string{names.Sandbox: "1"}}, {Name: "ovn-3", Type: "stt"},
		}
		got := ""
		for _, i := range all {
			if ofPasses(i, c.pods) {
				got += i.Name + " "
			}
		}
		if got != c.want {
			t.Errorf("with pods %t: %q, want %q", c.pods, got, c.want)
		}
	}
}
