package nodesubnet

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// maxAnnotation bounds the length of an annotation: two subnets of any text fit.
const maxAnnotation = 1024

// network is the key of the cluster's network in the annotation names.SubnetsAnnotation.
const network = "default"

// Annotations returns the annotations of a node with some subnets.
func Annotations(subnets []netip.Prefix) map[string]string {
	var value any = ipnet.Join(subnets)
	if len(subnets) > 1 {
		value = subnets
	}
	b, err := json.Marshal(map[string]any{network: value})
	if err != nil {
		panic("nodesubnet: subnets are not JSON: " + err.Error()) // strings are
	}
	return map[string]string{names.HostSubnetAnnotation: ipnet.Join(subnets), names.SubnetsAnnotation: string(b)}
}

// ParseAnnotations reads the subnets in a node's annotations: names.SubnetsAnnotation, or else
// names.HostSubnetAnnotation. It returns nil without any.
func ParseAnnotations(annotations map[string]string) ([]netip.Prefix, error) {
	key, list := names.SubnetsAnnotation, annotations[names.HostSubnetAnnotation]
	text := annotations[key]
	if text == "" {
		key, text = names.HostSubnetAnnotation, list
	}
	if text == "" {
		return nil, nil
	}
	if len(text) > maxAnnotation {
		return nil, fmt.Errorf("annotation %s has %d bytes, and subnets have at most %d", key, len(text), maxAnnotation)
	}
	if key == names.SubnetsAnnotation {
		var err error
		if list, err = parseJSON(text); err != nil {
			return nil, fmt.Errorf("annotation %s %.100q is not JSON as {%q: \"10.128.2.0/23\"}: %w", key, text, network, err)
		}
	}
	subnets, err := ipnet.ParseSubnets(list, 0)
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", key, err)
	}
	return subnets, nil
}

// parseJSON returns the value of network, a subnet or a list of subnets, as a comma-separated list.
func parseJSON(text string) (string, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return "", err
	}
	var one string
	if err := json.Unmarshal(all[network], &one); err == nil {
		return one, nil
	}
	var list []string
	if err := json.Unmarshal(all[network], &list); err != nil {
		return "", err
	}
	return strings.Join(list, ","), nil
}
