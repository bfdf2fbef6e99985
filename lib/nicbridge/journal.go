package nicbridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A phase is the progress of a move, as recorded in its journal.
type phase string

const (
	changing    phase = "changing"    // possibly half done: undo it
	unconfirmed phase = "unconfirmed" // done and verified: undo it at the deadline
	changed     phase = "changed"     // done and verified: only cleanup is left
)

// A journal records a move until it is complete. It is written before the first change, and sufficient to undo the
// move.
type journal struct {
	Direction Direction `json:"direction"`
	Phase     phase     `json:"phase"`
	// Boot is the kernel's boot ID: after a reboot, the move's changes in the kernel are gone, but those in Open
	// vSwitch's database remain.
	Boot     string    `json:"boot"`
	Deadline time.Time `json:"deadline,omitzero"`
	// By is the program, if one made the move by itself. "": an operator made it, or a former release; no program confirms it.
	By       string   `json:"by,omitempty"`
	Snapshot Snapshot `json:"snapshot"`
}

// String names the move.
func (j journal) String() string {
	return fmt.Sprintf("%s of %s", j.Direction, j.Snapshot.source(j.Direction))
}

// waits reports whether the move waits for Confirm now.
func (j journal) waits() (bool, error) {
	boot, err := bootID()
	return err == nil && j.Phase == unconfirmed && j.Boot == boot && time.Now().Before(j.Deadline), err
}

// A store is the directory of the journals.
type store struct{ dir string }

// stateDir honours OVS_DBDIR like Open vSwitch.
func stateDir() string {
	dir := os.Getenv("OVS_DBDIR")
	if dir == "" {
		dir = "/etc/openvswitch"
	}
	return filepath.Join(dir, "ovn-k8s-util")
}

// errBusy means that another process is moving addresses.
var errBusy = errors.New("another process moves a NIC, or undoes such a move: wait for its end")

// lock excludes moves by other processes until unlock is called or this process ends.
func (st store) lock() (unlock func(), err error) {
	if err := os.MkdirAll(st.dir, 0o755); err != nil {
		return nil, fmt.Errorf("making a place for the journal: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(st.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the journal: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, errBusy
	}
	working, err := st.flock(syscall.LOCK_EX)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	unlock = func() { _, _ = working.Close(), f.Close() }
	if err := st.sweep(); err != nil {
		unlock()
		return nil, fmt.Errorf("removing unfinished journals: %w", err)
	}
	return unlock, nil
}

// flock locks a second file until it is closed. The holder of lock has it beside its lock: idle waits for its end by it, and so
// does not make another process fail with errBusy. Only root may open both files: the lock of another user would stop all moves.
func (st store) flock(how int) (*os.File, error) {
	working, err := os.OpenFile(filepath.Join(st.dir, "working"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the journal: %w", err)
	}
	for {
		err := syscall.Flock(int(working.Fd()), how)
		if err == nil {
			return working, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			_ = working.Close()
			return nil, fmt.Errorf("locking the journal: %w", err)
		}
	}
}

// idle waits until the holder of the lock has released it, or has died.
func (st store) idle() error {
	working, err := st.flock(syscall.LOCK_SH)
	if err != nil {
		return err
	}
	return working.Close()
}

// unfinished is the prefix of incomplete journals.
const unfinished = ".new-"

// sweep removes incomplete journals of killed processes. Only the holder of the lock writes journals.
func (st store) sweep() error {
	all, err := filepath.Glob(filepath.Join(st.dir, unfinished+"*"))
	for _, path := range all {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func (st store) path(bridge string) string { return filepath.Join(st.dir, bridge+".json") }

// write writes a journal. It survives a crash of the machine.
func (st store) write(j journal) error {
	text, err := json.MarshalIndent(j, "", "\t")
	if err != nil {
		return st.unwritten(err)
	}
	f, err := os.CreateTemp(st.dir, unfinished)
	if err != nil {
		return st.unwritten(err)
	}
	defer os.Remove(f.Name()) // fails after the rename
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return st.unwritten(err)
	}
	if err := os.Rename(f.Name(), st.path(j.Snapshot.Bridge)); err != nil {
		return st.unwritten(err)
	}
	return st.sync()
}

// unwritten is the error of a journal, without the name of its temporary file: the next try has another one.
func (st store) unwritten(err error) error {
	if of := (*fs.PathError)(nil); errors.As(err, &of) {
		err = of.Err
	}
	return fmt.Errorf("writing the journal of a move in %s: %w", st.dir, err)
}

// sync flushes the directory.
func (st store) sync() error {
	d, err := os.Open(st.dir)
	if err != nil {
		return st.unwritten(err)
	}
	return errors.Join(d.Sync(), d.Close())
}

func (st store) remove(j journal) error {
	err := os.Remove(st.path(j.Snapshot.Bridge))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing the journal: %w", err)
	}
	return st.sync()
}

// all reads the existing journals, newest first: the order to undo them. A snapshot has routes over the bridge of an older one.
func (st store) all() ([]journal, error) {
	entries, err := os.ReadDir(st.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for journals: %w", err)
	}
	var all []journal
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		path := filepath.Join(st.dir, e.Name())
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Watch and Unconfirmed read without the lock
		}
		if err != nil {
			return nil, fmt.Errorf("reading a journal: %w", err)
		}
		var j journal
		if err := json.Unmarshal(text, &j); err != nil {
			return nil, fmt.Errorf("reading journal %s: %w", path, err)
		}
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b journal) int { return b.Snapshot.Taken.Compare(a.Snapshot.Taken) })
	return all, nil
}

// postpone sets the deadline of unconfirmed moves: they are of the command that begins another one, and undone with it.
func (st store) postpone(deadline time.Time) error {
	all, err := st.all()
	for _, j := range all {
		if j.Phase == unconfirmed {
			j.Deadline = deadline
			err = errors.Join(err, st.write(j))
		}
	}
	return err
}

// find returns the journal of a bridge, or nil.
func (st store) find(bridge string) (*journal, error) {
	all, err := st.all()
	for _, j := range all {
		if j.Snapshot.Bridge == bridge {
			return &j, nil
		}
	}
	return nil, err
}

// bootID identifies this boot of the machine.
func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("identifying this boot: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}
