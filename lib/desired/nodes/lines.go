package nodes

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
)

// Lines describes the work of a step for people, one change a line. Lines start with + (to be added), - (to be removed), ~ (to
// be changed) or ! (a problem).
func (s Step) Lines() (lines []string) {
	for _, u := range slices.Sorted(slices.Values(s.Units)) {
		name, _ := topology.NodeOf(u)
		was, now := ipnet.Join(s.Before.Nodes[name]), ipnet.Join(s.Record.Nodes[name])
		lines = appendLine(lines, "node "+name+": subnets", was, now)
		lines = appendLine(lines, "node "+name+": system-id", s.Before.Chassis[name], s.Record.Chassis[name])
	}
	for _, name := range mergedKeys(s.Before.Gateways, s.Record.Gateways) {
		was, is := s.Before.Gateways[name]
		now, stays := s.Record.Gateways[name]
		if is != stays || !was.Equal(now) {
			lines = appendLine(lines, "gateway "+name+":", text(was, is), text(now, stays))
		}
	}
	for _, p := range s.Patches {
		for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
			lines = append(lines, fmt.Sprintf("~ Node %s annotation %s → %q", p.Name, key, p.Annotations[key]))
		}
	}
	for _, u := range slices.Sorted(maps.Keys(s.Problems)) {
		lines = append(lines, fmt.Sprintf("! %s: %v", u, s.Problems[u]))
	}
	return lines
}

// text is a gateway as in the record, "" without one.
func text(g topology.Gateway, there bool) string {
	if !there {
		return ""
	}
	text, _ := json.Marshal(g) // its fields have no other than valid values
	return string(text)
}

// mergedKeys are the keys of two maps, sorted.
func mergedKeys[V any](a, b map[string]V) []string {
	all := map[string]bool{}
	for name := range a {
		all[name] = true
	}
	for name := range b {
		all[name] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// appendLine appends the change of a value, "" for none.
func appendLine(lines []string, what, was, now string) []string {
	switch {
	case was == now:
		return lines
	case was == "":
		return append(lines, fmt.Sprintf("+ %s %s", what, now))
	case now == "":
		return append(lines, fmt.Sprintf("- %s %s", what, was))
	}
	return append(lines, fmt.Sprintf("~ %s %s → %s", what, was, now))
}
