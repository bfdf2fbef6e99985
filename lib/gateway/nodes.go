package gateway

import (
	"maps"
	"slices"

	"ovn-k8s/lib/kube"
)

// takeNodes records the addresses of nodes. Nothing waits for them: until they are known,
// the host's own connections to NodePorts of policy Local lose their source address, and
// Services may have frontends at ports reserved on other nodes' addresses.
func (e *engine) takeNodes(ev kube.Event) []string {
	now := maps.Clone(e.nodes)
	switch {
	case ev.Replace:
		clear(now)
		for _, n := range ev.Objects {
			now.Put(n)
		}
	case ev.Gone:
		now.Remove(ev.Object)
	default:
		now.Put(ev.Object)
	}
	if maps.EqualFunc(e.nodes, now, slices.Equal) {
		return nil
	}
	e.nodes = now
	return e.all()
}
