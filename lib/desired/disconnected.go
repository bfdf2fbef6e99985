package desired

import (
	"fmt"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/nb"
)

// A UnitProblem is a Problem of a unit.
type UnitProblem struct {
	Unit nb.Unit
	*feature.Problem
}

// Disconnected lists the pods running according to their kubelets, but without an interface for their logical ports:
// of the ports that are down, those on registered hosts. Open vSwitch has lost such an interface, as when conf.db was
// restored from a backup.
func (w *World) Disconnected(down map[string]bool) (out []UnitProblem) {
	for port := range down {
		namespace, name, _ := strings.Cut(port, "_") // names.PodPort; names in Kubernetes have no "_"
		p, ok := w.Pods.Pod(pod.Key{Namespace: namespace, Name: name}.Unit())
		if !ok || len(p.StatusIPs) == 0 || !w.Facts().RegisteredNode(p.Node) {
			continue
		}
		out = append(out, UnitProblem{p.Unit(), &feature.Problem{Reason: "NoInterface", Message: fmt.Sprintf("pod %s runs, but Open vSwitch of node %s has no interface for its logical port, so that it has no network: delete the pod to recreate it", p.Key, p.Node)}})
	}
	slices.SortFunc(out, func(a, b UnitProblem) int { return strings.Compare(string(a.Unit), string(b.Unit)) })
	return out
}
