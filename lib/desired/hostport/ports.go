package hostport

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/service"
)

// A Port is a hostPort of a pod in one family.
type Port struct {
	pod.HostPort
	Of Pod
	To netip.AddrPort // of the pod
}

// Ports lists the hostPorts of pods in one family, sorted by precedence: of
// several at one port the first has it. NodePorts take precedence over all.
func Ports(family netip.Addr, frontends service.List, pods []Pod) []Port {
	if len(pods) == 0 { // mostly
		return nil
	}
	type port struct {
		corev1.Protocol
		number uint16
	}
	taken := map[port]bool{}
	for f := range frontends.Outside() {
		if f.Kind == service.NodePort {
			taken[port{f.Protocol(), f.Number}] = true
		}
	}
	var out []Port
	for _, p := range slices.SortedFunc(slices.Values(pods), func(a, b Pod) int {
		if a.Before(b.Pod) {
			return -1
		}
		return 1
	}) {
		to, ok := p.Addr(family)
		for _, h := range p.HostPorts {
			if ok && (!h.IP.IsValid() || h.IP.Is4() == family.Is4()) && !taken[port{h.Protocol, h.Port}] {
				out = append(out, Port{h, p, netip.AddrPortFrom(to, h.Target)})
			}
		}
	}
	return out
}
