// Package pod computes the logical ports of pods, and allocates their addresses.
package pod

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// A Key names a pod.
type Key struct{ Namespace, Name string }

// String is the key as Kubernetes writes it: "namespace/name".
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Unit returns the owner of the pod's rows.
func (k Key) Unit() nb.Unit { return nb.Unit(UnitPrefix + k.String()) }

// UnitPrefix starts the units of pods.
const UnitPrefix = "pod/"

// KeyOf is the inverse of Key.Unit. It reports false for units of other kinds.
func KeyOf(u nb.Unit) (Key, bool) {
	rest, ok := strings.CutPrefix(string(u), UnitPrefix)
	ns, name, ok2 := strings.Cut(rest, "/")
	return Key{ns, name}, ok && ok2
}

// A Pod holds the relevant fields of a Kubernetes pod.
type Pod struct {
	Key
	UID        string
	Node       string       // "" until it is scheduled
	StatusIPs  []netip.Addr // addresses reported by the kubelet
	Annotation string       // the value of names.Annotation
	// AnnotationUID is the value of names.AnnotationUID.
	AnnotationUID string
	// NeedsPort is false for pods in the host's network and for finished pods:
	// they have no logical port and hold no address.
	NeedsPort bool
	Created   int64 // creationTimestamp, in seconds since 1970
	// Static identifies a static pod. The kubelet may create its mirror pod again,
	// with another UID, while the pod runs.
	Static string
	// HostPorts are reached at the node's addresses.
	HostPorts []HostPort
	// Problems describe invalid HostPorts, a line each.
	Problems []string
}

// NeedsPort reports whether a pod has a logical port: see Pod.NeedsPort.
func NeedsPort(p *corev1.Pod) bool {
	finished := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	return p.Spec.NodeName != "" && !p.Spec.HostNetwork && !finished
}

// New takes the relevant fields from p.
func New(p *corev1.Pod) Pod {
	out := Pod{
		Key:        Key{p.Namespace, p.Name},
		UID:        string(p.UID),
		Node:       p.Spec.NodeName,
		Annotation: p.Annotations[names.Annotation],

		AnnotationUID: p.Annotations[names.AnnotationUID],
		NeedsPort:     NeedsPort(p),
		Static:        p.Annotations[corev1.MirrorPodAnnotationKey],
	}
	if out.AnnotationUID == out.UID {
		out.AnnotationUID = out.UID // one copy of the text
	}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			out.StatusIPs = append(out.StatusIPs, a.Unmap())
		}
	}
	if out.NeedsPort {
		out.Created = p.CreationTimestamp.Unix()
		out.HostPorts, out.Problems = hostPorts(p)
	}
	return out
}

// An Assignment holds the addresses and MAC of a pod, as recorded in its logical port.
type Assignment struct {
	Key
	UID    string // "" in ports of the Python era
	Static string // as Pod.Static
	MAC    string
	IPs    []netip.Addr
	// AnyInterface: the port does not name the pod's UID for its interface, since that of an older release has none.
	AnyInterface bool
}

// Of reports whether the assignment, of the same name, belongs to pod p: to the same
// object, or to an earlier mirror of the same static pod.
func (a Assignment) Of(p Pod) bool {
	return a.UID == "" || a.UID == p.UID || a.Static != "" && a.Static == p.Static
}

// ReadAssignment reads the output of Rows, or of the Python era's watcher and northd.
// It reports false for ports of anything but pods.
func ReadAssignment(port *nbdb.LogicalSwitchPort) (Assignment, bool) {
	ns := port.ExternalIDs[names.Namespace]
	name, ok := strings.CutPrefix(port.Name, ns+"_")
	if port.ExternalIDs[names.Pod] != "true" || ns == "" || !ok || len(port.Addresses) != 1 {
		return Assignment{}, false
	}
	text := port.Addresses[0]
	if text == "dynamic" && port.DynamicAddresses != nil {
		text = *port.DynamicAddresses
	}
	words := strings.Fields(text)
	if len(words) < 2 || !ipnet.UnicastMAC(words[0]) {
		return Assignment{}, false
	}
	a := Assignment{Key: Key{ns, name}, UID: port.ExternalIDs[names.PodUID], Static: port.ExternalIDs[names.StaticPod], MAC: words[0]}
	a.AnyInterface = port.Options[names.IfaceIDVer] == ""
	for _, w := range words[1:] {
		ip, err := netip.ParseAddr(w)
		if err != nil {
			return Assignment{}, false
		}
		a.IPs = append(a.IPs, ip)
	}
	return a, true
}

// Marks are the addresses at which a node's pool resumes after a restart, see Pool.Marks.
type Marks struct {
	Node string // the name of its switch
	Next []netip.Addr
}

// String is the value of names.NextAddress.
func (m Marks) String() string { return ipnet.Join(m.Next) }

// ReadMarks reads the value of names.NextAddress on a node's management port.
func ReadMarks(port *nbdb.LogicalSwitchPort) (Marks, bool) {
	node, ok := strings.CutPrefix(port.Name, names.ManagementPort(""))
	text := port.ExternalIDs[names.NextAddress]
	if !ok || text == "" {
		return Marks{}, false
	}
	m := Marks{Node: node}
	for s := range strings.SplitSeq(text, ",") {
		if a, err := netip.ParseAddr(s); err == nil {
			m.Next = append(m.Next, a)
		}
	}
	return m, true
}
