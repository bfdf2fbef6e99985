package cni

import (
	"fmt"
	"regexp"

	"github.com/containernetworking/cni/pkg/types"
	"k8s.io/apimachinery/pkg/api/resource"

	"ovn-k8s/lib/names"
)

// Valid limits, as in the kubelet (k8s.io/kubernetes, pkg/util/bandwidth).
const (
	minBandwidth = 1_000
	maxBandwidth = 1_000_000_000_000_000
)

// plainQuantity matches quantities as in 10M, 1.5Gi and 1e7. ParseQuantity computes with any exponent: minutes and gigabytes
// for 1e-2147483647, without an end by a context.
var plainQuantity = regexp.MustCompile(`^\+?([0-9]{1,18}(\.[0-9]{0,9})?|\.[0-9]{1,9})([munkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$`)

// A bandwidth is a pod's limits for received and sent traffic, in bits per second; 0 is no limit.
type bandwidth struct{ ingress, egress uint64 }

// parseBandwidth parses a pod's annotations. The error is a *types.Error.
func parseBandwidth(annotations map[string]string) (bandwidth, error) {
	var b bandwidth
	for key, to := range map[string]*uint64{names.IngressBandwidth: &b.ingress, names.EgressBandwidth: &b.egress} {
		value, ok := annotations[key]
		if !ok {
			continue
		}
		rate, ok := bitsPerSecond(value)
		if !ok {
			return bandwidth{}, types.NewError(types.ErrInvalidNetworkConfig,
				fmt.Sprintf("annotation %s of the pod is %.100q", key, value), "want bits per second from 1k to 1P, as in 10M")
		}
		*to = rate
	}
	return b, nil
}

// bitsPerSecond parses a valid limit.
func bitsPerSecond(value string) (rate uint64, ok bool) {
	if !plainQuantity.MatchString(value) {
		return 0, false
	}
	q, err := resource.ParseQuantity(value)
	if err != nil || q.Value() < minBandwidth || q.Value() > maxBandwidth {
		return 0, false
	}
	return uint64(q.Value()), true
}
