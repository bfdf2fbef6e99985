package nicbridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Recover undoes interrupted moves, and finishes the cleanup of verified ones. A move past its deadline for Confirm
// is undone, too. A move before its deadline stays.
func Recover(ctx context.Context, c Command) error {
	s, err := open(ctx, c)
	if err != nil {
		return err
	}
	defer s.close()
	return s.recover(ctx, func(j journal) (bool, error) {
		waits, err := j.waits()
		if waits {
			fmt.Fprintln(s.Out, j.toConfirm())
		}
		return !waits, err
	})
}

// Confirm makes unconfirmed moves permanent: those of the bridges in c.Names, or all. One to be undone is an error.
func Confirm(ctx context.Context, c Command) error {
	s, err := open(ctx, c)
	if err != nil {
		return err
	}
	defer s.close()
	return s.confirm(ctx)
}

func (s *session) confirm(ctx context.Context) error {
	all, err := s.store.all()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(j journal) bool {
		return j.Phase == changed || len(s.Names) > 0 && !slices.Contains(s.Names, j.Snapshot.Bridge)
	})
	if len(all) == 0 {
		return errors.New("nothing waits for confirm: it was confirmed already, or its time was over and it has been undone")
	}
	var errs []error
	for _, j := range all {
		waits, err := j.waits()
		switch {
		case err == nil && waits:
			err = s.finish(context.WithoutCancel(ctx), j)
		case err == nil:
			err = j.late()
		}
		if err == nil {
			fmt.Fprintf(s.Out, "%s is confirmed\n", j)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// late is the error of a move that cannot be confirmed.
func (j journal) late() error {
	why := "it was interrupted"
	if boot, err := bootID(); err == nil && j.Boot != boot {
		why = "the host was restarted since"
	} else if !j.Deadline.IsZero() && !time.Now().Before(j.Deadline) {
		why = "its time was over at " + j.Deadline.Format(time.TimeOnly)
	}
	return fmt.Errorf("%s cannot be confirmed: %s, and it is to be undone: run '%s %s --recover'", j, why, program, ToBridge)
}

// Unconfirmed returns the bridges of a program's moves waiting for Confirm now, see Command.Mark. interrupted reports
// whether Recover has something to do, for moves by anybody.
func Unconfirmed(by string) (bridges []string, interrupted bool, err error) {
	all, err := store{stateDir()}.all()
	if err != nil {
		return nil, false, err
	}
	for _, j := range all {
		waits, err := j.waits()
		if err != nil {
			return nil, false, err
		}
		interrupted = interrupted || !waits
		if waits && j.By == by {
			bridges = append(bridges, j.Snapshot.Bridge)
		}
	}
	return bridges, interrupted, nil
}

// retryInterval is the watchdog's delay between tries.
const retryInterval = time.Second

// Watch undoes the move of a bridge if the process that makes it dies in the middle, or unless it is confirmed until its
// deadline. It retries until this succeeds or ctx ends: the operator may have lost access to the host.
func Watch(ctx context.Context, c Command, bridge string) error {
	due, err := undecided(ctx, bridge)
	if err != nil || due == nil {
		return err
	}
	for last := ""; ; {
		err := recoverThose(ctx, c, due)
		if err == nil {
			return nil
		}
		if err.Error() != last && !errors.Is(err, errBusy) {
			last = err.Error()
			fmt.Fprintf(c.Err, "%s: trying again until it is undone: %v\n", program, err)
		}
		if !wait(ctx, retryInterval) {
			return err
		}
	}
}

// undecided waits until the present move of a bridge is complete or has to be undone. It returns a function that selects
// the journal to recover, nil if there is none.
func undecided(ctx context.Context, bridge string) (due func(journal) (bool, error), err error) {
	st := store{stateDir()}
	watched, err := st.find(bridge)
	if err != nil || watched == nil {
		return nil, err
	}
	if err := st.idle(); err != nil {
		return nil, err
	}
	left, err := st.find(bridge)
	if err != nil || left == nil {
		return nil, err
	}
	if left.Phase == unconfirmed && !wait(ctx, time.Until(left.Deadline)) {
		return nil, nil
	}
	return func(j journal) (bool, error) {
		waits, err := j.waits()
		age := j.Snapshot.Taken.Compare(watched.Snapshot.Taken)
		return age == 0 || age > 0 && !waits, err // later moves of the same command first
	}, nil
}

// recoverThose is recover in a session of its own.
func recoverThose(ctx context.Context, c Command, due func(journal) (bool, error)) error {
	s, err := open(ctx, c)
	if err != nil {
		return err
	}
	defer s.close()
	return s.recover(ctx, due)
}

// wait waits for d and returns false if ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// overdue reports whether a journal is to be recovered now. It returns an error for a move waiting for Confirm: no
// other move can start.
func (s *session) overdue(j journal) (bool, error) {
	waits, err := j.waits()
	if waits {
		err = errors.New(j.toConfirm())
	}
	return !waits, err
}

// toConfirm tells an operator about a move waiting for Confirm.
func (j journal) toConfirm() string {
	return fmt.Sprintf("%s waits until %s to be confirmed: run '%s confirm', or wait for it to be undone", j, j.Deadline.Format(time.TimeOnly), program)
}

// recover undoes or completes the journals that are due. An error of one does not affect the others.
func (s *session) recover(ctx context.Context, due func(journal) (bool, error)) error {
	ctx = context.WithoutCancel(ctx)
	all, err := s.store.all()
	if err != nil {
		return err
	}
	var errs []error
	for _, j := range all {
		ok, err := due(j)
		if ok && err == nil {
			err = s.recoverOne(ctx, j)
		}
		if errors.Is(err, errKilled) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *session) recoverOne(ctx context.Context, j journal) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	switch {
	case j.Phase == changed:
		if err := s.finish(ctx, j); err != nil {
			return err
		}
		fmt.Fprintf(s.Err, "%s: %s of an earlier run is completed\n", program, j)
		return nil
	case j.Boot != boot:
		err = s.undoDatabase(ctx, j)
	default:
		err = s.undo(ctx, j)
	}
	if err != nil {
		return fmt.Errorf("%s of an earlier run: %w", j, err)
	}
	fmt.Fprintf(s.Err, "%s: %s of an earlier run is undone\n", program, j)
	return nil
}

// undoDatabase is undo after a reboot: addresses and routes come from the host's own configuration again, but the
// bridge still exists.
func (s *session) undoDatabase(ctx context.Context, j journal) error {
	ctx, cancel := context.WithTimeout(ctx, s.limits.move)
	defer cancel()
	snap, back := j.Snapshot, j.Direction.back()
	steps := slices.DeleteFunc(slices.Concat(snap.Plan(back), snap.Leftover(back)), func(st Step) bool {
		return !slices.Contains([]action{makeBridge, attach, detach, reset, deleteBridge}, st.Do)
	})
	if err := s.mover.undo(ctx, snap, back, steps); err != nil {
		return err
	}
	return s.store.remove(j)
}
