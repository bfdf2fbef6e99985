package nicbridge

import (
	"context"
	"fmt"
	"net/netip"

	"ovn-k8s/lib/garp"
	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/nicbridge/witness"
)

// listen finds the targets that answer before the move.
func (s *session) listen(ctx context.Context, snap Snapshot, d Direction) witness.Witnesses {
	all := witness.Witnesses{Hops: witness.Hops(snap.Records), Probes: s.probes}
	if len(all.Hops)+len(all.Probes) == 0 {
		return witness.Witnesses{}
	}
	i, err := s.frames(snap.source(d))
	if err != nil {
		s.warn("next hops and probes are not checked: %v", err)
		return witness.Witnesses{}
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.askBefore)
	defer cancel()
	heard, silent := all.Ask(ctx, i)
	for _, q := range silent {
		s.warn("%s does not answer now, so it is not checked after the move", q.Name)
	}
	return heard
}

// frames is an interface for package garp.
func (s *session) frames(name string) (garp.Interface, error) {
	i, err := ifstate.Find(name)
	if err != nil {
		return garp.Interface{}, err
	}
	device, err := ifstate.DeviceOf(i)
	return garp.Interface{Name: name, Index: i.Index, MAC: device.MAC}, err
}

// announce tells the neighbours about the addresses' new port, except duplicates of other hosts' addresses. Errors do
// not matter: the MAC is unchanged and known to the neighbours.
func (s *session) announce(i ifstate.Interface, snap Snapshot) {
	var addresses []netip.Addr
	for _, r := range snap.Records {
		if r.Usable() {
			addresses = append(addresses, r.Prefix().Addr())
		}
	}
	frames, err := s.frames(i.Name)
	if err == nil {
		err = garp.Announce(frames, addresses)
	}
	if err != nil {
		s.warn("%v", err)
	}
}

// verify checks that the target has all records, that ovs-vswitchd serves it, and that all witnesses answer again.
func (s *session) verify(ctx context.Context, snap Snapshot, d Direction, want witness.Witnesses) error {
	lost, err := snap.missing(d)
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		return fmt.Errorf("%s %s is not on %s", lost[0].Kind, lost[0].Text, snap.target(d))
	}
	i, err := ifstate.Find(snap.target(d))
	if err != nil {
		return err
	}
	s.announce(i, snap)
	frames, err := s.frames(i.Name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.askAfter)
	defer cancel()
	if err := s.sw.AwaitVswitchd(ctx); err != nil {
		return err
	}
	if _, silent := want.Ask(ctx, frames); len(silent) > 0 {
		return fmt.Errorf("%s answered before, but does not answer now (%w)", silent[0].Name, silent[0].Err)
	}
	return nil
}
