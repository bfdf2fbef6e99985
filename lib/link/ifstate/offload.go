package ifstate

import (
	"fmt"
	"maps"
	"slices"

	"github.com/safchain/ethtool"
)

// joining are the offloads that merge received packets. Open vSwitch in user space drops packets larger than the MTU.
var joining = []string{"rx-gro", LRO, "rx-gro-hw"}

// LRO is the offload disabled by the kernel on hosts that forward packets.
const LRO = "rx-lro"

// Joining returns the enabled offloads of an interface that merge packets.
func Joining(i Interface) ([]string, error) {
	var on []string
	err := withEthtool(func(e *ethtool.Ethtool) error {
		features, err := e.Features(i.Name)
		for _, name := range joining {
			if features[name] {
				on = append(on, name)
			}
		}
		return err
	})
	return on, err
}

// SetOffloads enables and disables offloads of an interface.
func SetOffloads(i Interface, want map[string]bool) error {
	return withEthtool(func(e *ethtool.Ethtool) error {
		is, err := e.Features(i.Name)
		if err != nil {
			return fmt.Errorf("reading the offloads of %s: %w", i.Name, err)
		}
		change := maps.Clone(want)
		maps.DeleteFunc(change, func(name string, on bool) bool { return is[name] == on })
		if len(change) == 0 {
			return nil
		}
		if err := e.Change(i.Name, change); err != nil {
			return fmt.Errorf("switching offloads %v of %s: %w", slices.Sorted(maps.Keys(change)), i.Name, err)
		}
		return nil
	})
}

func withEthtool(f func(*ethtool.Ethtool) error) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("opening ethtool's socket: %w", err)
	}
	defer e.Close()
	return f(e)
}
