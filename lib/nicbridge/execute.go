package nicbridge

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"ovn-k8s/lib/link/record"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A mover carries out plans.
type mover struct {
	sw *vswitch.Switch
	// before is called before each step, if set; its error is as good as one of
	// the step. Tests are its only users.
	before func(Step) error
}

// do carries out the steps until one fails.
func (m mover) do(ctx context.Context, s Snapshot, d Direction, steps []Step) error {
	var found record.Interface // by the step before
	for _, st := range steps {
		if m.before != nil {
			if err := m.before(st); err != nil {
				return err
			}
		}
		// Thousands of routes are of one interface. It is looked up again where that fails.
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

// undo carries out all steps, whatever happens to some of them.
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

// errKilled is what tests end a mover with, as if its process were killed.
var errKilled = errors.New("killed")

// step carries out one step. It returns the interface that it has looked up, if any.
func (m mover) step(ctx context.Context, s Snapshot, d Direction, st Step) (i record.Interface, err error) {
	switch st.Do {
	case makeBridge:
		return i, m.sw.EnsureStandaloneBridge(ctx, s.standalone())
	case reset:
		return i, m.sw.RestoreBridge(ctx, s.standalone(), s.Row)
	case deleteBridge:
		return i, m.sw.DeleteBridge(ctx, s.Bridge)
	case attach:
		return i, m.sw.EnsureUplink(ctx, s.Bridge, s.NIC)
	case detach:
		return i, m.detach(ctx, s)
	}
	i, err = record.Find(st.On)
	if errors.Is(err, record.ErrNone) && (st.Do == remove || st.Do == restore) {
		return i, nil // with the interface everything of it is gone
	}
	if err != nil {
		return i, err
	}
	return i, s.kernelStep(i, d, st)
}

// ofRecords reports whether steps of an action may be repeated, each with a few messages to
// the kernel.
func (a action) ofRecords() bool { return a == remove || a == add || a == arrange }

// standalone is the bridge that the NIC becomes a port of.
func (s Snapshot) standalone() vswitch.StandaloneBridge {
	return vswitch.StandaloneBridge{Name: s.Bridge, MAC: s.MAC, MTU: s.MTU, DatapathType: s.Datapath, ExternalIDs: s.ExternalIDs}
}

// detach takes the NIC out of the bridge, if it is in it.
func (m mover) detach(ctx context.Context, s Snapshot) error {
	in, err := m.sw.BridgeOfPort(ctx, s.NIC)
	if err != nil || in != s.Bridge {
		return err
	}
	_, err = m.sw.DeletePort(ctx, s.Bridge, s.NIC)
	return err
}

// kernelStep carries out a step that Open vSwitch has no part in.
func (s Snapshot) kernelStep(i record.Interface, d Direction, st Step) error {
	switch st.Do {
	case prepare:
		return errors.Join(record.Configure(quiet(s.open(d)), i), record.Apply(s.device(d), i))
	case settle:
		return s.settle(i, d)
	case silence:
		return record.Configure(mute, i)
	case restore:
		device := s.KeptDevice
		device.MTU = 0
		return errors.Join(record.Configure(s.KeptSettings, i), record.Apply(device, i))
	case offload:
		want := map[string]bool{}
		for _, name := range s.Joining {
			want[name] = d == ToNIC
		}
		return record.SetOffloads(i, want)
	case remove:
		return record.Remove(st.Records[0], i)
	case add:
		return record.Add(st.Records[0], i, s.age())
	case arrange:
		return record.Arrange(st.Records, i, s.age())
	}
	return fmt.Errorf("no such step: %s", st.Do)
}

// age is how many seconds ago the snapshot was taken.
func (s Snapshot) age() uint32 {
	age := time.Since(s.Taken).Seconds()
	return uint32(min(max(age, 0), math.MaxInt32))
}

// settle lets the kernel go on by itself, and removes what it has made of its own
// in the course of the move: routes of addresses that had been removed, and
// link-local addresses.
func (s Snapshot) settle(i record.Interface, d Direction) error {
	if err := record.Configure(s.open(d), i); err != nil {
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
	is, err := record.Of(i)
	if err != nil {
		return err
	}
	for _, r := range slices.Backward(is) {
		if r.Automatic() && r.Mentions(i.Name) && !wanted[r.Key()] {
			if err := record.Remove(r, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// missing lists what of the snapshot an interface does not have.
func (s Snapshot) missing(d Direction) ([]record.Record, error) {
	i, err := record.Find(s.target(d))
	if err != nil {
		return nil, err
	}
	return record.Lost(s.named(s.Records, i.Name), i)
}
