package ovnkube

import (
	"context"

	"ovn-k8s/lib/overlay"
)

// Remove takes a node out of the cluster, as ovn-k8s-overlay node-remove does: --remove-node.
func (p *Process) Remove(ctx context.Context, node string) error {
	return overlay.Run(ctx, overlay.Dependencies{Settings: p.runtime(), Out: p.Out, Err: p.Err}, overlay.Removal{NodeName: node})
}
