package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/flow"
	"ovn-k8s/lib/flowsync"
	"ovn-k8s/lib/names"
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
	known    ofctl.Known // ports of the bridge
}

// find returns the bridge with its ports and MAC, and reports whether it has the NIC and the patch port. Port numbers change
// together with the flows of the bridge, when ovs-vswitchd restarts, or in the database.
func (s *flows) find(ctx context.Context, bridge ofctl.Bridge, iface string, p ports, b bridgeflows.Bridge) (_ bridgeflows.Bridge, nic, patch bool, err error) {
	type state struct {
		changes        uint64
		nicBridge, mac string
		nic, outside   int
	}
	found, err := s.known.Ports(ctx, bridge, state{s.changes.Load(), p.nic.Bridge, p.mac, p.nic.Ofport, p.outside.Ofport})
	if err != nil {
		return b, false, false, err
	}
	b.MAC = found.LocalMAC()
	b.Physical, nic = found.Find(iface, p.nic.Ofport)
	b.Overlay, patch = found.Find(names.PatchToIntegration(bridge.Name), p.outside.Ofport)
	if b.MAC == "" || !nic || !patch {
		s.known.Forget()
	}
	if b.MAC == "" {
		return b, false, false, fmt.Errorf("bridge %s has no MAC yet", bridge.Name)
	}
	return b, nic, patch, nil
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
	return s.kept.Flows(b, v.outside, v.pods)
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
