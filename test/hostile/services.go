package hostile

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Limits of the API server.
const (
	maxSliceEndpoints = 1000
	maxSlicePorts     = 20_000
	maxHints          = 8
	maxLabel          = 63
	maxName           = 253
	nodePorts         = 2768 // of each protocol
)

// maxEndpoints bounds the endpoints of a drawn case.
const maxEndpoints = 100_000

// Services draws Services with their EndpointSlices, and changes of both.
func Services(s Source) Case {
	h := s.serviceShape()
	var out Case
	n := 1
	if s.IntN(5) == 0 {
		n, h.slices, h.endpoints = s.amount(100), 1, min(h.endpoints, 100)
		h.ports, h.externals = min(h.ports, 10), min(h.externals, 10)
	}
	for i := range n {
		svc := s.service(i, h)
		out.Objects = append(out.Objects, svc)
		for sl := range h.slices {
			out.Objects = append(out.Objects, h.slice(svc, sl, 0))
		}
	}
	svc := out.Objects[0].(*corev1.Service)
	for turn := 1; turn <= 3; turn++ { // one author with the right to update
		out.Objects = append(out.Objects, h.turned(svc, turn))
		if h.slices > 0 {
			out.Objects = append(out.Objects, h.slice(svc, s.IntN(h.slices), turn))
		}
	}
	out.Name = fmt.Sprintf("%d services %s", n, h)
	return out
}

// A serviceShape holds the numbers of a Service's parts.
type serviceShape struct {
	ports, slices, endpoints, slicePorts                    int
	externals, ingress, ranges                              int
	address, hint                                           int // kinds
	externalLocal, internalLocal, affinity, nodePorts, dual bool
	long                                                    bool // names of maximum length
}

// String lists the parts.
func (h serviceShape) String() string {
	text := fmt.Sprintf("of %d ports, %d slices of %d endpoints and %d ports, %d external addresses, %d of load balancers, %d ranges, addresses %d, hints %d",
		h.ports, h.slices, h.endpoints, h.slicePorts, h.externals, h.ingress, h.ranges, h.address, h.hint)
	for name, is := range map[string]bool{
		"external local": h.externalLocal, "internal local": h.internalLocal, "affinity": h.affinity, "node ports": h.nodePorts, "dual stack": h.dual, "long names": h.long,
	} {
		if is {
			text += ", " + name
		}
	}
	return text
}

const addressKinds, hintKinds = 6, 4

func (s Source) serviceShape() serviceShape {
	h := serviceShape{
		ports: One(s, 1, 1, 2, 10, s.amount(20_000)), slices: One(s, 1, 2, 10, s.amount(300)), endpoints: One(s, 1, 10, s.amount(maxSliceEndpoints), maxSliceEndpoints),
		externals: One(s, 0, 0, 1, s.amount(20_000)), ingress: One(s, 0, 0, 1, s.amount(20_000)), ranges: One(s, 0, 0, 1, s.amount(20_000)),
		address: s.IntN(addressKinds), hint: s.IntN(hintKinds),
	}
	h.slicePorts = One(s, h.ports, h.ports, 1, min(h.ports*2, maxSlicePorts))
	flag := func() bool { return s.IntN(3) == 0 }
	h.externalLocal, h.internalLocal, h.affinity, h.nodePorts, h.dual, h.long = flag(), flag(), flag(), flag(), flag(), s.IntN(8) == 0
	h.slices = max(1, min(h.slices, maxEndpoints/h.endpoints))
	for h.slicePorts*(60+h.nameBytes()) > MaxObject-h.endpoints*250 {
		h.slicePorts = h.slicePorts * 4 / 5
	}
	return h
}

func (h serviceShape) nameBytes() int {
	if h.long {
		return maxLabel
	}
	return len("p-12345")
}

// service returns a Service of a shape, reduced until it fits.
func (s Source) service(n int, h serviceShape) *corev1.Service {
	for {
		if h.ports*(80+h.nameBytes())+h.externals*18+h.ingress*25+h.ranges*20 < MaxObject {
			if svc := h.draft(n); Fits(svc) {
				return svc
			}
		}
		switch max(h.ports, h.externals, h.ingress, h.ranges) {
		case h.ports:
			h.ports = h.ports * 4 / 5
		case h.externals:
			h.externals = h.externals * 4 / 5
		case h.ingress:
			h.ingress = h.ingress * 4 / 5
		default:
			h.ranges = h.ranges * 4 / 5
		}
	}
}

func (h serviceShape) draft(n int) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: Tenant, Name: h.name("service", n, maxLabel), UID: types.UID(fmt.Sprint("uid-service-", n))}}
	spec := &svc.Spec
	spec.Type, spec.ClusterIPs = corev1.ServiceTypeClusterIP, []string{fmt.Sprintf("172.30.%d.%d", n/250, 1+n%250)}
	if h.dual {
		spec.ClusterIPs = append(spec.ClusterIPs, fmt.Sprintf("fd02::%x", 1+n))
	}
	spec.ClusterIP = spec.ClusterIPs[0]
	if h.nodePorts || h.ingress > 0 || h.ranges > 0 {
		spec.Type = corev1.ServiceTypeLoadBalancer
	}
	for i := range h.ports {
		p := corev1.ServicePort{Name: h.portName(i), Protocol: protocolOf(i), Port: int32(1 + i/3)}
		if h.nodePorts && i/3 < nodePorts {
			p.NodePort = int32(30_000 + (i/3+n*h.ports)%nodePorts)
		}
		spec.Ports = append(spec.Ports, p)
	}
	for i := range h.externals { // many Services have these
		spec.ExternalIPs = append(spec.ExternalIPs, h.outside(i))
	}
	for i := range h.ingress {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: h.outside(i + h.externals/2)})
	}
	for i := range h.ranges {
		spec.LoadBalancerSourceRanges = append(spec.LoadBalancerSourceRanges, fmt.Sprintf("%d.%d.%d.0/24", 20+i/65536, i/256%256, i%256))
	}
	h.policies(svc)
	return svc
}

// policies sets the traffic policies and session affinity.
func (h serviceShape) policies(svc *corev1.Service) {
	svc.Spec.ExternalTrafficPolicy, svc.Spec.InternalTrafficPolicy = "", nil
	if h.externalLocal {
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if h.internalLocal {
		local := corev1.ServiceInternalTrafficPolicyLocal
		svc.Spec.InternalTrafficPolicy = &local
	}
	svc.Spec.SessionAffinity = corev1.ServiceAffinityNone
	if h.affinity {
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
}

// turned returns a Service after a number of changes of its policies.
func (h serviceShape) turned(svc *corev1.Service, turn int) *corev1.Service {
	svc = svc.DeepCopy()
	h.externalLocal, h.internalLocal, h.affinity = h.externalLocal != (turn%2 == 1), h.internalLocal != (turn%3 == 1), h.affinity != (turn%2 == 0)
	h.policies(svc)
	return svc
}

// slice returns one slice of a Service after a number of changes.
func (h serviceShape) slice(svc *corev1.Service, n, turn int) *discoveryv1.EndpointSlice {
	six := h.dual && n%2 == 1
	sl := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: Tenant, Name: fmt.Sprint(svc.Name, "-", h.name("slice", n, maxName-maxLabel-1)), Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name}},

		AddressType: discoveryv1.AddressTypeIPv4,
	}
	if six {
		sl.AddressType = discoveryv1.AddressTypeIPv6
	}
	for i := range h.slicePorts {
		name, protocol, port := h.portName(i), protocolOf(i), int32(1000+(i+n%7)%60_000)
		sl.Ports = append(sl.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &port})
	}
	for i := range h.endpoints {
		sl.Endpoints = append(sl.Endpoints, h.endpoint(n*h.endpoints+i, turn, six))
	}
	return sl
}

// endpoint returns the endpoint with a number.
func (h serviceShape) endpoint(i, turn int, six bool) discoveryv1.Endpoint {
	node := NodeName(i % 1000)
	a := netip.AddrFrom4([4]byte{10, byte(i % 1000 / 250), byte(i % 1000 % 250), byte(2 + i/1000%250)})
	switch h.address {
	case 1: // hosts
		a = netip.AddrFrom4([4]byte{192, 100, byte(i % 1000 / 250), byte(1 + i%1000%250)})
	case 2: // outside of the cluster
		a = netip.AddrFrom4([4]byte{198, 18 + byte(i>>16), byte(i >> 8), byte(i)})
	case 3: // all on one node
		a, node = netip.AddrFrom4([4]byte{10, 0, 1, byte(2 + i%250)}), NodeName(1)
	case 4: // the same again and again, on different nodes
		a = netip.AddrFrom4([4]byte{10, 0, 2, byte(2 + i%3)})
	case 5: // with a wrong node name
		node = NodeName((i + 1) % 1000)
	}
	if six {
		b := a.As4()
		a = netip.AddrFrom16([16]byte{0xfd, 0, 15: b[3], 14: b[2], 7: b[1], 5: b[0] & 1, 10: byte(i >> 16), 11: byte(i >> 8), 12: byte(i)})
	}
	yes, is := true, func(n int) *bool { v := (i+turn)%n == 0; return &v }
	e := discoveryv1.Endpoint{Addresses: []string{a.String()}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &yes}}
	if turn > 0 {
		e.Conditions = discoveryv1.EndpointConditions{Ready: is(2), Serving: is(3), Terminating: is(5)}
	}
	e.Hints = h.hints(i)
	return e
}

func (h serviceShape) hints(i int) *discoveryv1.EndpointHints {
	var hints discoveryv1.EndpointHints
	for n := range maxHints {
		switch h.hint {
		case 1: // trafficDistribution: PreferSameZone
			hints.ForZones = append(hints.ForZones, discoveryv1.ForZone{Name: fmt.Sprint("zone-", (i+n)%3)})
		case 2: // PreferSameNode, and eight nodes
			hints.ForNodes = append(hints.ForNodes, discoveryv1.ForNode{Name: NodeName((i*maxHints + n) % 1000)})
		case 3: // zones without nodes
			hints.ForZones = append(hints.ForZones, discoveryv1.ForZone{Name: fmt.Sprint("nowhere-", i*maxHints+n)})
		}
	}
	return &hints
}

// outside returns the external address with a number: some are those of hosts, one of another Service.
func (h serviceShape) outside(i int) string {
	if h.address == 1 && i < 1000 {
		return fmt.Sprintf("192.100.%d.%d", i/250, 1+i%250)
	}
	if h.dual && i%2 == 1 {
		return fmt.Sprintf("2001:db8:5::%x", i)
	}
	return fmt.Sprintf("203.%d.%d.%d", i>>16, i>>8&255, i&255)
}

func (h serviceShape) name(kind string, n, limit int) string {
	name := fmt.Sprint(kind, "-", n)
	if h.long {
		name += "-" + strings.Repeat("x", limit-len(name)-1)
	}
	return name
}

func (h serviceShape) portName(i int) string { return h.name("p", i, maxLabel) }

func protocolOf(i int) corev1.Protocol {
	return []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}[i%3]
}
