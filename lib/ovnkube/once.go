package ovnkube

import (
	"context"

	"ovn-k8s/lib/overlay"
	"ovn-k8s/lib/ovnkube/node"
)

// Remove takes a node out of the cluster, as ovn-k8s-overlay node-remove does: --remove-node.
func (p *Process) Remove(ctx context.Context, node string) error {
	return overlay.Run(ctx, overlay.Dependencies{Settings: p.runtime(), Out: p.Out, Err: p.Err}, overlay.Removal{NodeName: node})
}

// Clean takes back what the role of a node did on this host: --cleanup-node.
func (p *Process) Clean(ctx context.Context, name string) error {
	return node.Clean(ctx, node.Options{Name: name, Flags: p.Flags, Log: p.Log})
}

// Watch guards the move of a NIC to a bridge by the role of a node: node.WatchCommand.
func (p *Process) Watch(ctx context.Context, bridge string) error {
	return node.Watch(ctx, p.Flags["config-file"], p.Err, bridge)
}
