package nicbridge

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A mover carries out plans.
type mover struct {
	sw *vswitch.Switch
	// before, if set, is called before each step, for tests. Its error counts as the step's.
	before func(Step) error
}

// do carries out the steps until one fails.
func (m mover) do(ctx context.Context, s Snapshot, d Direction, steps []Step) error {
	var found ifstate.Interface // by the previous step
	for _, st := range steps {
		if m.before != nil {
			if err := m.before(st); err != nil {
				return err
			}
		}
		// There may be thousands of routes of one interface: look it up again only after a failure.
		if found.Name == st.On && st.Do.ofRecords() && s.kernelStep(found, d, st) == nil {
			continue
		}
		var err error
		if found, err = m.step(ctx, s, d, st); err != nil {
			return err
		}
	}
	return nil
}

// undo carries out all steps, even after failures.
func (m mover) undo(ctx context.Context, s Snapshot, d Direction, steps []Step) error {
	var errs []error
	for _, st := range steps {
		err := m.do(ctx, s, d, []Step{st})
		if errors.Is(err, errKilled) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// errKilled stops a mover in tests, as if its process was killed.
var errKilled = errors.New("killed")

// step carries out one step. It returns the interface if it has looked it up.
func (m mover) step(ctx context.Context, s Snapshot, d Direction, st Step) (i ifstate.Interface, err error) {
	switch st.Do {
	case makeBridge:
		return i, m.sw.EnsureStandaloneBridge(ctx, s.standalone())
	case reset:
		return i, m.sw.RestoreBridge(ctx, s.standalone(), s.Row)
	case deleteBridge:
		return i, m.sw.DeleteBridge(ctx, s.Bridge)
	case attach:
		return i, m.sw.EnsureUplink(ctx, s.Bridge, s.NIC, s.Port)
	case detach:
		return i, m.detach(ctx, s)
	}
	i, err = ifstate.Find(st.On)
	if errors.Is(err, ifstate.ErrNone) && (st.Do == remove || st.Do == restore) {
		return i, nil // all of it disappeared with the interface
	}
	if err != nil {
		return i, err
	}
	return i, s.kernelStep(i, d, st)
}

// ofRecords reports whether steps of this action are cheap to repeat: a few messages to the kernel.
func (a action) ofRecords() bool { return a == remove || a == add || a == arrange }

// standalone is the bridge to which the NIC is added.
func (s Snapshot) standalone() vswitch.StandaloneBridge {
	return vswitch.StandaloneBridge{Name: s.Bridge, MAC: s.MAC, MTU: s.MTU, DatapathType: s.Datapath, ExternalIDs: s.ExternalIDs}
}

// detach removes the NIC from the bridge, if it is a port.
func (m mover) detach(ctx context.Context, s Snapshot) error {
	in, err := m.sw.BridgeOfPort(ctx, s.NIC)
	if err != nil || in != s.Bridge {
		return err
	}
	_, err = m.sw.DeletePort(ctx, s.Bridge, s.NIC)
	return err
}

// kernelStep carries out a step without Open vSwitch.
func (s Snapshot) kernelStep(i ifstate.Interface, d Direction, st Step) error {
	switch st.Do {
	case prepare:
		return errors.Join(ifstate.Configure(quiet(s.open(d)), i), ifstate.Apply(s.device(d), i))
	case settle:
		return s.settle(i, d)
	case silence:
		return ifstate.Configure(mute, i)
	case restore:
		device := s.KeptDevice
		device.MTU = 0
		return errors.Join(ifstate.Configure(s.KeptSettings, i), ifstate.Apply(device, i))
	case offload:
		want := map[string]bool{}
		for _, name := range s.Joining {
			want[name] = d == ToNIC
		}
		return ifstate.SetOffloads(i, want)
	case remove:
		return ifstate.Remove(st.Records[0], i)
	case add:
		return ifstate.Add(st.Records[0], i, s.age())
	case arrange:
		from, err := ifstate.Find(s.source(d))
		if errors.Is(err, ifstate.ErrNone) {
			from, err = ifstate.Interface{Name: s.source(d)}, nil
		}
		if err != nil {
			return err
		}
		return ifstate.Arrange(st.Records, i, from, s.age())
	}
	return fmt.Errorf("no such step: %s", st.Do)
}

// age is the age of the snapshot in seconds.
func (s Snapshot) age() uint32 {
	age := time.Since(s.Taken).Seconds()
	return uint32(min(max(age, 0), math.MaxInt32))
}

// settle restores the kernel's settings and removes side effects of the move: the kernel's routes of removed
// addresses, and link-local addresses.
func (s Snapshot) settle(i ifstate.Interface, d Direction) error {
	if err := ifstate.Configure(s.open(d), i); err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, r := range s.named(s.Records, i.Name) {
		wanted[r.Key()] = true
	}
	if i.Name == s.other() {
		for _, r := range s.Kept {
			wanted[r.Key()] = true
		}
	}
	is, err := ifstate.Of(i)
	if err != nil {
		return err
	}
	for _, r := range slices.Backward(is) {
		if r.Automatic() && r.Mentions(i.Name) && !wanted[r.Key()] {
			if err := ifstate.Remove(r, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// missing lists the records of the snapshot missing from the target.
func (s Snapshot) missing(d Direction) ([]ifstate.Record, error) {
	i, err := ifstate.Find(s.target(d))
	if err != nil {
		return nil, err
	}
	return ifstate.Lost(s.named(s.Records, i.Name), i)
}
