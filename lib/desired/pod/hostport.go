package pod

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A HostPort is a port of a pod, reached at addresses of its node.
type HostPort struct {
	// IP is its address on the node. 0.0.0.0 and :: mean all addresses of the family,
	// and the zero Addr means all.
	IP       netip.Addr
	Protocol corev1.Protocol
	Port     uint16 // of the node
	Target   uint16 // of the pod
}

// At reports whether h is reached at an address, given that it is one of the node's.
func (h HostPort) At(a netip.Addr) bool {
	switch {
	case !h.IP.IsValid():
		return true
	case h.IP.IsUnspecified():
		return h.IP.Is4() == a.Is4()
	}
	return h.IP == a
}

// Outside reports whether h is reachable from elsewhere than the node itself in the
// family of an address.
func (h HostPort) Outside(family netip.Addr) bool {
	return !h.IP.IsValid() || h.IP.Is4() == family.Is4() && !h.IP.IsLoopback()
}

// String formats h as "80/TCP" or "192.0.2.1:80/TCP".
func (h HostPort) String() string {
	if !h.IP.IsValid() {
		return fmt.Sprintf("%d/%s", h.Port, h.Protocol)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(h.IP, h.Port), h.Protocol)
}

// Before reports whether p takes precedence over q for a port of both: the older pod
// does, and of two created in the same second, the first by name.
func (p Pod) Before(q Pod) bool {
	return cmp.Or(cmp.Compare(p.Created, q.Created), strings.Compare(p.String(), q.String())) < 0
}

// hostPorts lists the hostPorts of containers and of sidecars (init containers with
// restartPolicy Always). It omits invalid ones and reports them as problems.
func hostPorts(p *corev1.Pod) (ports []HostPort, problems []string) {
	add := func(c corev1.Container) {
		for _, port := range c.Ports {
			if port.HostPort <= 0 || port.HostPort > 65535 || port.ContainerPort <= 0 || port.ContainerPort > 65535 {
				continue // the API server accepts no such value but 0, which means none
			}
			h := HostPort{Protocol: cmp.Or(port.Protocol, corev1.ProtocolTCP), Port: uint16(port.HostPort), Target: uint16(port.ContainerPort)}
			if port.HostIP != "" {
				ip, err := netip.ParseAddr(port.HostIP)
				if err != nil || ip.Zone() != "" {
					problems = append(problems, fmt.Sprintf("hostIP %q of hostPort %s of pod %s/%s is no IP address: give one of its node's, or none", port.HostIP, h, p.Namespace, p.Name))
					continue
				}
				h.IP = ip.Unmap()
			}
			ports = append(ports, h)
		}
	}
	for _, c := range p.Spec.Containers {
		add(c)
	}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	if len(ports) > maxHostPorts {
		return nil, []string{fmt.Sprintf("pod %s/%s has %d hostPorts, more than %d: it has none", p.Namespace, p.Name, len(ports), maxHostPorts)}
	}
	return ports, problems
}

// maxHostPorts limits the hostPorts of a pod: each has a frontend at each address of
// its node.
const maxHostPorts = 1000
