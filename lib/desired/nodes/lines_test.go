package nodes

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

func TestLines(t *testing.T) {
	subnets := func(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
	gateway := func(mode string) topology.Gateway {
		return topology.Gateway{Mode: mode, IPs: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24")}}
	}
	s := Step{
		Units: []nb.Unit{topology.NodeUnit("new"), topology.NodeUnit("gone"), topology.NodeUnit("moved"), topology.NodeUnit("same")},
		Before: topology.Cluster{
			Nodes:    map[string][]netip.Prefix{"gone": subnets("10.0.1.0/24"), "moved": subnets("10.0.2.0/24"), "same": subnets("10.0.3.0/24")},
			Chassis:  map[string]string{"moved": "a", "same": "c"},
			Gateways: topology.Gateways{"gone": gateway("bridge"), "moved": gateway("bridge"), "same": gateway("local")},
		},
		Record: topology.Cluster{
			Nodes:    map[string][]netip.Prefix{"new": subnets("10.0.4.0/24"), "moved": subnets("10.0.5.0/24"), "same": subnets("10.0.3.0/24")},
			Chassis:  map[string]string{"moved": "b", "same": "c"},
			Gateways: topology.Gateways{"moved": gateway("local"), "same": gateway("local")},
		},
		Patches:  []Patch{{Name: "new", Annotations: map[string]string{"k": "v"}}},
		Problems: map[nb.Unit]error{topology.NodeUnit("same"): errors.New("no room")},
	}
	const rest = `,"interface":"","chassis":"","mac":"","ips":["192.0.2.2/24"],"join":null}`
	bridge, local := `{"mode":"bridge"`+rest, `{"mode":"local"`+rest
	want := []string{
		"- node gone: subnets 10.0.1.0/24",
		"~ node moved: subnets 10.0.2.0/24 → 10.0.5.0/24",
		"~ node moved: system-id a → b",
		"+ node new: subnets 10.0.4.0/24",
		"- gateway gone: " + bridge,
		"~ gateway moved: " + bridge + " → " + local,
		`~ Node new annotation k → "v"`,
		"! node/same: no room",
	}
	if got := s.Lines(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	s.Record, s.Patches, s.Problems = s.Before, nil, nil
	if got := s.Lines(); len(got) > 0 {
		t.Errorf("without a difference: %q", got)
	}
}
