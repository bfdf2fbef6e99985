package gateway

import (
	"context"
	"slices"
	"sync/atomic"

	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/flow"
	"ovn-k8s/lib/flowsync"
	"ovn-k8s/lib/ofctl"
)

// flows are those of the shared bridge. Most changes of Services are of endpoints, and change none of them: then the bridge
// is not read. All but changes belongs to sync's work.
type flows struct {
	kept    bridgeflows.Kept
	changes atomic.Uint64 // notifications of the bridge
	// have are the flows after the last sync, nil if it failed; at is the value of changes by then. complete is whether the
	// Services were known, without which their flows stay.
	have     []flow.Flow
	at       uint64
	complete bool
}

// changed records that the bridge may have other flows.
func (s *flows) changed() { s.changes.Add(1) }

// wanted returns the desired flows of a bridge.
func (s *flows) wanted(b bridgeflows.Bridge, known bool, v view) []flow.Flow {
	switch {
	case !known:
		return b.HostFlows()
	case !v.synced:
		return bridgeflows.Base(b)
	}
	return s.kept.Flows(b, v.frontends, v.pods)
}

// ours returns a function that reports whether a flow may be deleted. Until Services are
// known, their flows stay as they are.
func ours(b bridgeflows.Bridge, v view) func(flow.Flow) bool {
	if v.synced {
		return b.Ours
	}
	return bridgeflows.IsBase
}

// sync replaces the flows of a bridge and returns the changes.
func (s *flows) sync(ctx context.Context, bridge ofctl.Bridge, b bridgeflows.Bridge, known bool, v view) ([]flow.Mod, error) {
	now, want := s.changes.Load(), s.wanted(b, known, v)
	if s.have != nil && s.at == now && s.complete == v.synced && slices.Equal(s.have, want) {
		return nil, nil
	}
	s.have, s.at, s.complete = nil, now, v.synced
	mods, err := flowsync.Sync(ctx, bridge, want, ours(b, v))
	if err == nil {
		s.have = want
	}
	return mods, err
}
