// Package annotation reads and writes the annotation of a pod with its addresses.
package annotation

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"ovn-k8s/lib/ipnet"
)

// Addresses are the content of a pod's annotation.
type Addresses struct {
	MAC      string         // as in "0a:58:c0:a8:02:03"
	IPs      []netip.Prefix // address and prefix length of the node's subnet; IPv4 first
	Gateways []netip.Addr   // one for each of IPs
}

// annotation is the JSON object of the pod annotation names.Annotation, with
// the same three members since the Python era. In a dual-stack cluster ip_address
// and gateway_ip are comma-separated lists, IPv4 first.
type annotation struct {
	IP      string `json:"ip_address"`
	MAC     string `json:"mac_address"`
	Gateway string `json:"gateway_ip"`
}

// Annotation formats a as the value of the pod annotation names.Annotation.
func (a Addresses) Annotation() string {
	b, err := json.Marshal(annotation{ipnet.Join(a.IPs), a.MAC, ipnet.Join(a.Gateways)})
	if err != nil {
		panic(err) // three strings always marshal
	}
	return string(b)
}

// maxAnnotation, in bytes, is longer than any annotation of ours. Users may write up
// to 256 KiB, with an error for each comma.
const maxAnnotation = 1024

// pythonMember matches a member of the Python dictionary written by releases before
// September 2017: the same three strings in single quotes.
var pythonMember = regexp.MustCompile(`u?'([^'"\\]*)'`)

// Parse parses the value of the pod annotation names.Annotation, JSON or
// the single-quoted dictionary of old versions. All members must be present and valid;
// the error names every problem.
func Parse(s string) (Addresses, error) {
	if len(s) > maxAnnotation {
		return Addresses{}, fmt.Errorf("annotation %.40q… has %d bytes: it is not of this suite", s, len(s))
	}
	var raw annotation
	if err := json.Unmarshal([]byte(s), &raw); err != nil {
		if json.Unmarshal([]byte(pythonMember.ReplaceAllString(s, `"$1"`)), &raw) != nil {
			return Addresses{}, fmt.Errorf("annotation %q is not a JSON object: %w", s, err)
		}
	}
	a := Addresses{MAC: raw.MAC}
	var errs []error
	if !ipnet.UnicastMAC(raw.MAC) {
		errs = append(errs, fmt.Errorf("mac_address %q is not a unicast MAC", raw.MAC))
	}
	for ip := range strings.SplitSeq(raw.IP, ",") {
		p, err := netip.ParsePrefix(ip)
		if err != nil {
			errs = append(errs, fmt.Errorf("ip_address %q is not an address with a prefix length", ip))
		}
		a.IPs = append(a.IPs, p)
	}
	for gw := range strings.SplitSeq(raw.Gateway, ",") {
		g, err := netip.ParseAddr(gw)
		if err != nil {
			errs = append(errs, fmt.Errorf("gateway_ip %q is not an address", gw))
		}
		a.Gateways = append(a.Gateways, g)
	}
	if len(errs) == 0 && !gatewaysFit(a) {
		errs = append(errs, fmt.Errorf("gateway_ip %q does not match ip_address %q", raw.Gateway, raw.IP))
	}
	if err := errors.Join(errs...); err != nil {
		return Addresses{}, fmt.Errorf("annotation %q: %w", s, err)
	}
	return a, nil
}

// gatewaysFit reports whether each address has a gateway in its own subnet.
func gatewaysFit(a Addresses) bool {
	if len(a.IPs) != len(a.Gateways) {
		return false
	}
	for i, p := range a.IPs {
		if !p.Contains(a.Gateways[i]) {
			return false
		}
	}
	return true
}
