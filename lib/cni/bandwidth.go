package cni

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	"k8s.io/apimachinery/pkg/api/resource"

	"ovn-k8s/lib/names"
)

// Valid limits, as in the kubelet (k8s.io/kubernetes, pkg/util/bandwidth).
const (
	minBandwidth = 1_000
	maxBandwidth = 1_000_000_000_000_000
)

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
		q, err := resource.ParseQuantity(value)
		if err != nil || q.Value() < minBandwidth || q.Value() > maxBandwidth {
			return bandwidth{}, types.NewError(types.ErrInvalidNetworkConfig,
				fmt.Sprintf("annotation %s of the pod is %q", key, value), "want bits per second from 1k to 1P, as in 10M")
		}
		*to = uint64(q.Value())
	}
	return b, nil
}
