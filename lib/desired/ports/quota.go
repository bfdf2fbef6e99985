package ports

import (
	"fmt"
	"slices"

	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/nb"
)

// OrdinaryHostPorts is the number of hostPorts of a pod without a limit of the namespace. MaxHostPorts is the limit of all
// others of its pods together: with 100 nodes, ovn-northd 23.03 takes half a second for their load balancers, again for
// each transaction.
const (
	OrdinaryHostPorts = 10
	MaxHostPorts      = 2000
)

// quotas have the pods of each namespace with more hostPorts than OrdinaryHostPorts, the older first.
type quotas map[string][]share

// A share is a pod's part of the limit of its namespace.
type share struct {
	podClaim
	ports   int // above OrdinaryHostPorts
	refused bool
}

// change replaces a pod by its latest version; each is zero if there is none. It adds the units of the pods refused from
// now on, or no longer.
func (all quotas) change(touched map[nb.Unit]bool, old, now pod.Pod) {
	list := all[old.Namespace]
	if at, has := slices.BinarySearchFunc(list, old, share.compare); has {
		list = slices.Delete(list, at, at+1)
		all.keep(touched, old.Namespace, list)
	}
	if ports := len(now.HostPorts) - OrdinaryHostPorts; ports > 0 {
		list = all[now.Namespace]
		at, _ := slices.BinarySearchFunc(list, now, share.compare)
		one := share{podClaim{Pod: pod.Pod{Key: now.Key, Created: now.Created}}, ports, false}
		all.keep(touched, now.Namespace, slices.Insert(list, at, one))
	}
}

// keep decides which pods of a namespace are refused.
func (all quotas) keep(touched map[nb.Unit]bool, namespace string, list []share) {
	if all[namespace] = list; len(list) == 0 {
		delete(all, namespace)
	}
	room := MaxHostPorts
	for i := range list {
		s := &list[i]
		refused := s.ports > room
		if !refused {
			room -= s.ports
		}
		if refused != s.refused {
			s.refused, touched[s.Unit()] = refused, true
		}
	}
}

// Refused describes why older pods leave a pod no hostPorts, nil if they do.
func (x *HostPorts) Refused(p pod.Pod) *feature.Problem {
	list := x.quotas[p.Namespace]
	at, has := slices.BinarySearchFunc(list, p, share.compare)
	if !has || !list[at].refused {
		return nil
	}
	return &feature.Problem{Reason: "TooManyHostPorts", Message: fmt.Sprintf(
		"pod %s has no hostPorts: above %d it has %d more, and older pods of namespace %s leave less of %d: use fewer, or several namespaces",
		p.Key, OrdinaryHostPorts, list[at].ports, p.Namespace, MaxHostPorts)}
}
