package gateway

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/link"
)

// takePods records the pods of this node with hostPorts. Their addresses come from
// the kubelet, never from annotations that users can write.
func (e *engine) takePods(ev kube.Event) []string {
	changed := false
	put := func(o any, gone bool) pod.Key {
		p := pod.New(o.(*corev1.Pod))
		now := hostport.Pod{Pod: p, Addrs: p.StatusIPs}
		old, was := e.pods[p.Key]
		switch is := !gone && len(p.HostPorts) > 0 && len(p.StatusIPs) > 0; {
		case is:
			e.pods[p.Key] = now
			changed = changed || !was || !slices.Equal(old.Addrs, now.Addrs) || !slices.Equal(old.HostPorts, now.HostPorts) || old.Created != now.Created
		case was:
			delete(e.pods, p.Key)
			changed = true
		}
		return p.Key
	}
	switch {
	case ev.Replace:
		here := map[pod.Key]bool{}
		for _, o := range ev.Objects {
			here[put(o, false)] = true
		}
		for k := range e.pods {
			if !here[k] {
				delete(e.pods, k)
				changed = true
			}
		}
		changed = e.listed(ev.Kind) || changed
	default:
		put(ev.Object, ev.Gone)
	}
	if !changed {
		return nil
	}
	return e.all()
}

// hostPods lists the pods of this node with hostPorts, sorted by name.
func (e *engine) hostPods() []hostport.Pod {
	out := make([]hostport.Pod, 0, len(e.pods))
	for _, p := range e.pods {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b hostport.Pod) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// allowLoopback enables or disables packets with addresses of 127.0.0.0/8 at the
// management port, in both directions.
func allowLoopback(v view, allowed bool) error {
	if v.host.Management == "" {
		return nil
	}
	return link.RouteLocalnet(v.host.Management, allowed)
}

// showHostPorts prints the hostPorts of this node's pods.
func (h *Helper) showHostPorts([]string) (string, error) {
	_, v, err := h.seen()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "POD\tHOST PORT\tTO\tFROM OUTSIDE")
	for _, p := range v.pods {
		for _, port := range p.HostPorts {
			var to []string
			for _, a := range p.Addrs {
				to = append(to, netip.AddrPortFrom(a, port.Target).String())
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.Key, port, strings.Join(to, ", "), v.hostPortTaker(port))
		}
	}
	err = t.Flush()
	return b.String(), err
}

// hostPortTaker names the part of the host that handles connections from outside to a hostPort.
func (v view) hostPortTaker(h pod.HostPort) string {
	router := slices.ContainsFunc(v.bridge.Router, h.At)
	switch {
	case h.IP.IsLoopback():
		return "nobody"
	case !v.known || !router:
		return "iptables"
	case h.IP.IsValid() && !h.IP.IsUnspecified():
		return "flows"
	}
	return "flows, iptables at other addresses"
}
