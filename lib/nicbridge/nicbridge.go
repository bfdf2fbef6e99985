// Package nicbridge moves the network configuration of a NIC to an Open vSwitch bridge with the NIC as its port, and
// back: addresses, routes, rules, permanent neighbours and settings.
//
// The operator's own connection may use the NIC, so a move is a transaction. A Snapshot is saved in a journal; a pure
// function plans the steps; after them, the target must have all records, and all hosts that answered before must
// answer again. Otherwise the plan of the other direction, from the same snapshot, undoes the move. Every step is
// idempotent, so undoing works from any intermediate state: the journal does not record the progress of a killed
// process.
package nicbridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nicbridge/witness"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
)

// program is the prefix of lines on standard error.
const program = "ovn-k8s-util"

const (
	// connectTimeout bounds the time to connect to Open vSwitch's database.
	connectTimeout = 10 * time.Second
	// busyTimeout bounds the time to wait for another process. It is longer than a move and its undoing, see limits.
	busyTimeout  = time.Minute
	busyInterval = 100 * time.Millisecond
)

// Limits are timeouts, constant except in tests.
type limits struct {
	// move bounds the steps of one move. With a running ovs-vswitchd they take 100 ms.
	move time.Duration
	// askBefore is the time for neighbours and probes to answer before the move. Silent ones are ignored after it.
	askBefore time.Duration
	// askAfter is the time for answers after the move, and for ovs-vswitchd: switches may have to learn the MAC, and
	// ovs-vswitchd to install flows.
	askAfter time.Duration
}

func usual() limits { return limits{20 * time.Second, 600 * time.Millisecond, 10 * time.Second} }

// A Command holds the parameters of a command.
type Command struct {
	// Settings are the settings from the command line, see settings.Flags.Map.
	Settings map[string]string
	// Names are NICs, or bridges. For Confirm: bridges, none for those of all moves.
	Names []string
	// DryRun prints the steps and changes nothing.
	DryRun bool
	// Probe is an address to be reached after the move if it was reachable before: "10.0.0.1" by ICMP, "10.0.0.1:443"
	// by TCP. Empty: none.
	Probe string
	// ConfirmWithin is the time until the move is undone unless Confirm is called; 0 means never.
	ConfirmWithin time.Duration
	// Watch is the program's command that calls Watch for the bridge in its argument, in a process of its own. Without
	// it, a caller with ConfirmWithin calls Watch itself, and a move stays half done if this process is killed.
	Watch string
	// Unwatched makes the move also if that process cannot be started, such as in a container.
	Unwatched bool
	// Mark are keys for external_ids of a bridge made by the move, to find it again. A program with moves of its own has
	// its name there, as names.MovedBy.
	Mark map[string]string
	// Out gets the result, Err warnings.
	Out, Err io.Writer
	// Advise gets what is to be done by hand after a move, a paragraph for each thing. nil: Out gets it.
	Advise func(text string)
}

// A session is a running command.
type session struct {
	Command
	store  store
	sw     *vswitch.Switch
	mover  mover
	probes []witness.Probe
	unlock func()
	limits limits
}

// Move moves NICs to bridges, or bridges to NICs, one after the other. An error of one does not affect the others;
// the error has a line for each.
func Move(ctx context.Context, d Direction, c Command) error {
	s, err := open(ctx, c)
	if err != nil {
		return err
	}
	defer s.close()
	if c.DryRun {
		return s.preview(ctx, d)
	}
	if err := s.recover(ctx, s.overdue); err != nil {
		return err
	}
	if s.probes, err = witness.Probes(s.Probe, s.apiServer(ctx)); err != nil {
		return err
	}
	var errs []error
	for _, name := range unique(c.Names) {
		errs = append(errs, s.move(ctx, d, name))
	}
	return errors.Join(errs...)
}

// unique removes duplicates.
func unique(all []string) []string {
	var out []string
	for _, name := range all {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// open starts a session.
func open(ctx context.Context, c Command) (*session, error) {
	if err := link.NeedRoot(); err != nil {
		return nil, err
	}
	rundir, err := settings.RunDir(c.Settings)
	if err != nil {
		return nil, err
	}
	s := &session{Command: c, store: store{stateDir()}, limits: usual()}
	if s.unlock, err = s.lock(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if s.sw, err = vswitch.Connect(ctx, rundir, nil); err != nil {
		s.unlock()
		return nil, err
	}
	s.mover.sw = s.sw
	return s, nil
}

// lock waits for the move of another process, for a bounded time. The watchdog of a killed process undoes its move.
func (s *session) lock(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	for waiting := false; ; waiting = true {
		unlock, err := s.store.lock()
		if !errors.Is(err, errBusy) {
			return unlock, err
		}
		if !waiting {
			s.warn("another process moves a NIC: waiting until it is done, for at most %v", busyTimeout)
		}
		if !wait(ctx, busyInterval) {
			return nil, err
		}
	}
}

func (s *session) close() {
	s.sw.Close()
	s.unlock()
}

func (s *session) warn(format string, args ...any) {
	fmt.Fprintf(s.Err, program+": warning: "+format+"\n", args...)
}

// apiServer is the API server's address from the configuration, "" if it is unknown. An invalid configuration does
// not prevent a move.
func (s *session) apiServer(ctx context.Context) string {
	c, err := settings.Load(ctx, s.Settings, s.sw)
	if err != nil {
		s.warn("the API server cannot be asked, because of the configuration: %v", err)
		c = config.Config{}
	}
	return c.APIServer
}

// preview prints the changes of a move.
func (s *session) preview(ctx context.Context, d Direction) error {
	left, err := s.store.all()
	if err != nil {
		return err
	}
	for _, j := range left {
		fmt.Fprintf(s.Out, "# first, %s of an earlier run is undone: %s\n", j.Direction, j.Snapshot.Bridge)
	}
	var errs []error
	for _, name := range unique(s.Names) {
		snap, err := s.inspect(ctx, d, name)
		var done errDone
		if errors.As(err, &done) {
			fmt.Fprintf(s.Out, "# %s: nothing to do: %v\n", name, done)
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(s.Out, "# %s\n", snap.From)
		for _, st := range slices.Concat(snap.Plan(d), snap.Leftover(d)) {
			fmt.Fprintln(s.Out, st)
		}
		s.advise(snap, d)
	}
	return errors.Join(errs...)
}

// move moves one NIC or bridge.
func (s *session) move(ctx context.Context, d Direction, name string) error {
	snap, err := s.inspect(ctx, d, name)
	var done errDone
	if errors.As(err, &done) {
		fmt.Fprintf(s.Out, "nothing to do: %v\n", done)
		return nil
	}
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := snap.try(); err != nil {
		return err
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	// From here on, a lost terminal must not interrupt the move.
	ctx = context.WithoutCancel(ctx)
	want := s.listen(ctx, snap, d)
	j := journal{Direction: d, Phase: changing, Boot: boot, By: s.Mark[names.MovedBy], Snapshot: snap}
	if s.ConfirmWithin > 0 {
		j.Deadline = time.Now().Add(s.ConfirmWithin)
		if err := s.store.postpone(j.Deadline); err != nil {
			return err
		}
	}
	if err := s.store.write(j); err != nil {
		return err
	}
	if err := s.startWatchdog(snap.Bridge); err != nil {
		return errors.Join(err, s.store.remove(j))
	}
	if err := s.change(ctx, j, want); err != nil {
		return err
	}
	s.advise(snap, d)
	fmt.Fprintf(s.Out, "%s has what %s had\n", snap.target(d), snap.source(d))
	if s.ConfirmWithin > 0 {
		fmt.Fprintf(s.Out, "run '%s confirm' before %s, or it is undone\n", program, j.Deadline.Format(time.TimeOnly))
	}
	return nil
}

// startWatchdog starts a process that undoes the move if this process dies in the middle, or unless it is confirmed.
func (s *session) startWatchdog(bridge string) error {
	if s.Watch == "" {
		return nil
	}
	args := []string{s.Watch, bridge}
	if file := s.Settings["config-file"]; file != "" {
		args = append(args, "--config-file="+file)
	}
	err := daemon.Background(filepath.Join(s.store.dir, "watchdog.log"), args...)
	if err != nil && s.Unwatched {
		s.warn("if this process is killed during the move, the host has no network until the next start: %v", err)
		return nil
	}
	return err
}

// change makes the change of a journal, verifies it, and undoes it on failure.
func (s *session) change(ctx context.Context, j journal, want witness.Witnesses) error {
	snap, d := j.Snapshot, j.Direction
	run, cancel := context.WithTimeoutCause(ctx, s.limits.move, fmt.Errorf("not done within %v", s.limits.move))
	defer cancel()
	err := s.mover.do(run, snap, d, snap.Plan(d))
	if err == nil {
		err = s.verify(ctx, snap, d, want)
	}
	if err == nil {
		err = s.commit(&j)
	}
	if errors.Is(err, errKilled) {
		return err
	}
	if err != nil {
		err = fmt.Errorf("moving %s to %s: %w", snap.source(d), snap.target(d), err)
		if undo := s.undo(ctx, j); undo != nil {
			return errors.Join(err, undo)
		}
		return undone{fmt.Errorf("%w: %s is as it was before", err, snap.source(d))}
	}
	if j.Phase == unconfirmed {
		return nil
	}
	return s.tidy(ctx, j)
}

// An undone is the error of a move that was made and undone.
type undone struct{ error }

func (u undone) Unwrap() error { return u.error }

// IsUndone reports whether an error of Move is about a move that was made and undone. Then the next one interrupts
// connections again.
func IsUndone(err error) bool { return errors.As(err, new(undone)) }

// commit records the success of a move. If no cleanup is left, it deletes the journal.
func (s *session) commit(j *journal) error {
	done := *j
	switch {
	case j.Phase == changing && !j.Deadline.IsZero():
		done.Phase = unconfirmed
	case len(j.Snapshot.Leftover(j.Direction)) == 0:
		return nil
	default:
		done.Phase = changed
	}
	if err := s.store.write(done); err != nil {
		return err
	}
	*j = done
	return nil
}

// finish completes a verified move.
func (s *session) finish(ctx context.Context, j journal) error {
	if err := s.commit(&j); err != nil {
		return err
	}
	return s.tidy(ctx, j)
}

// tidy cleans up after a move.
func (s *session) tidy(ctx context.Context, j journal) error {
	ctx, cancel := context.WithTimeout(ctx, s.limits.move)
	defer cancel()
	if err := s.mover.do(ctx, j.Snapshot, j.Direction, j.Snapshot.Leftover(j.Direction)); err != nil {
		return fmt.Errorf("%s has everything, but something is left to tidy: %w: try again with '%s %s --recover'", j.Snapshot.target(j.Direction), err, program, ToBridge)
	}
	return s.store.remove(j)
}

// undo reverts a move as far as necessary.
func (s *session) undo(ctx context.Context, j journal) error {
	ctx, cancel := context.WithTimeout(ctx, s.limits.move)
	defer cancel()
	if j.Phase == unconfirmed {
		j.Phase = changing
		_ = s.store.write(j) // else Confirm refuses it by its deadline: a full disk may not keep the host cut off
	}
	snap, back := j.Snapshot, j.Direction.back()
	err := s.mover.undo(ctx, snap, back, snap.Plan(back))
	if err == nil {
		err = s.isBack(snap, back)
	}
	if err == nil {
		err = s.mover.undo(ctx, snap, back, snap.Leftover(back))
	}
	if errors.Is(err, errKilled) {
		return err
	}
	if err != nil {
		return fmt.Errorf("undoing the move: %w: the former state is saved in %s; try again with '%s %s --recover'", err, s.store.path(snap.Bridge), program, ToBridge)
	}
	if i, err := ifstate.Find(snap.From); err == nil {
		s.announce(i, snap)
	}
	return s.store.remove(j)
}

// isBack returns an error unless all records are back at their source. It only warns of those of other interfaces: the kernel may
// not accept them any more, because of changes since the move.
func (s *session) isBack(snap Snapshot, d Direction) error {
	lost, err := snap.missing(d)
	if err != nil || len(lost) == 0 {
		return err
	}
	if n := slices.IndexFunc(lost, func(r ifstate.Record) bool { return r.Mentions(snap.From) }); n >= 0 {
		return fmt.Errorf("%s %s is not on %s", lost[n].Kind, lost[n].Text, snap.From)
	}
	s.warn("%s %s of another interface is not back, and %d more: see ip(8)", lost[0].Kind, lost[0].Text, len(lost)-1)
	return nil
}
