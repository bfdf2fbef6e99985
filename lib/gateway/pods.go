package gateway

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/link"
)

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
		return "rules"
	case h.IP.IsValid() && !h.IP.IsUnspecified():
		return "flows"
	}
	return "flows, rules at other addresses"
}
