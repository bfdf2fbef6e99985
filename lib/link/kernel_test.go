package link

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

// TestKernelParts compares the answers with the kernel's list of modules, and looks for traces of the questions.
func TestKernelParts(t *testing.T) {
	err := container(t).Do(func() error {
		if has, err := hasKind("nonsense"); err != nil || has {
			t.Errorf("a kind that no kernel has: %v, %v", has, err)
		}
		if has, err := hasKind("vxlan"); err != nil || !has {
			t.Logf("a kernel without VXLAN: %v, %v", has, err)
		}
		for name, ask := range map[string]func() (bool, error){"openvswitch": HasOpenVSwitch, "geneve": HasGeneve} {
			has, err := ask()
			_, missing := os.Stat("/sys/module/" + name)
			if err != nil || !has && missing == nil {
				t.Errorf("%s: %v, %v; /sys/module: %v", name, has, err, missing)
			}
			t.Logf("%s: %v", name, has)
		}
		all, err := netlink.LinkList()
		var names []string
		for _, l := range all {
			names = append(names, l.Attrs().Name)
		}
		if diff := cmp.Diff([]string{"lo"}, names); diff != "" {
			t.Errorf("interfaces (-want +got)\n%s", diff)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
