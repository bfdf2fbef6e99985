package pod

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A HostPort is a port of a pod that is reached at addresses of its node.
type HostPort struct {
	// IP is the address at which it is. That of a whole family, 0.0.0.0 or ::,
	// means all of that family, and the zero Addr all.
	IP       netip.Addr
	Protocol corev1.Protocol
	Port     uint16 // of the node
	Target   uint16 // of the pod
}

// At reports whether h is at an address, if that is one of the node's.
func (h HostPort) At(a netip.Addr) bool {
	switch {
	case !h.IP.IsValid():
		return true
	case h.IP.IsUnspecified():
		return h.IP.Is4() == a.Is4()
	}
	return h.IP == a
}

// Outside reports whether others than the node itself can reach h by a family,
// which is that of family.
func (h HostPort) Outside(family netip.Addr) bool {
	return !h.IP.IsValid() || h.IP.Is4() == family.Is4() && !h.IP.IsLoopback()
}

// String names h as people do: "80/TCP", "192.0.2.1:80/TCP".
func (h HostPort) String() string {
	if !h.IP.IsValid() {
		return fmt.Sprintf("%d/%s", h.Port, h.Protocol)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(h.IP, h.Port), h.Protocol)
}

// Before reports whether p has a better right to a port that both want: the
// older one has, and of two of the same second the first by name.
func (p Pod) Before(q Pod) bool {
	return cmp.Or(cmp.Compare(p.Created, q.Created), strings.Compare(p.String(), q.String())) < 0
}

// hostPorts are the hostPorts of containers, and of those init containers that
// go on beside them. Those that make no sense are left out, and named.
func hostPorts(p *corev1.Pod) (ports []HostPort, problems []string) {
	add := func(c corev1.Container) {
		for _, port := range c.Ports {
			if port.HostPort <= 0 || port.HostPort > 65535 || port.ContainerPort <= 0 || port.ContainerPort > 65535 {
				continue // the API server lets nothing but 0 through, which is none
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

// maxHostPorts is how many hostPorts of a pod are used. Each is a way in at each
// address of its node.
const maxHostPorts = 1000
