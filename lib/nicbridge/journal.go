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

// A phase is how far a move has come, as its journal says.
type phase string

const (
	changing    phase = "changing"    // anything may be half done: undo it
	unconfirmed phase = "unconfirmed" // done and verified: undo it at the deadline
	changed     phase = "changed"     // done and verified: only tidying is left
)

// A journal is what is kept of a move until it is done. It is written before the
// first change, and it alone is enough to undo the move.
type journal struct {
	Direction Direction `json:"direction"`
	Phase     phase     `json:"phase"`
	// Boot is the kernel's random identifier: after a reboot nothing of what the
	// move did to the kernel is left, but Open vSwitch has its database.
	Boot     string    `json:"boot"`
	Deadline time.Time `json:"deadline,omitzero"`
	Snapshot Snapshot  `json:"snapshot"`
}

// A store is the directory with the journals.
type store struct{ dir string }

// stateDir follows OVS_DBDIR as Open vSwitch does.
func stateDir() string {
	dir := os.Getenv("OVS_DBDIR")
	if dir == "" {
		dir = "/etc/openvswitch"
	}
	return filepath.Join(dir, "ovn-k8s-util")
}

// errBusy means that another process moves addresses.
var errBusy = errors.New("another ovn-k8s-util is at work: wait for it")

// lock keeps other processes from moving addresses until unlock is called, or
// this process ends.
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
	if err := st.sweep(); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("removing unfinished journals: %w", err)
	}
	return func() { _ = f.Close() }, nil
}

// unfinished begins the names of journals that are being written.
const unfinished = ".new-"

// sweep removes journals that killed processes have not finished. Only who holds
// the lock writes any.
func (st store) sweep() error {
	all, err := filepath.Glob(filepath.Join(st.dir, unfinished+"*"))
	for _, path := range all {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func (st store) path(bridge string) string { return filepath.Join(st.dir, bridge+".json") }

// write writes a journal so that it survives a crash of the machine.
func (st store) write(j journal) error {
	text, err := json.MarshalIndent(j, "", "\t")
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	f, err := os.CreateTemp(st.dir, unfinished)
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	defer os.Remove(f.Name()) // nothing once it is renamed
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	if err := os.Rename(f.Name(), st.path(j.Snapshot.Bridge)); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	return st.sync()
}

// sync has the directory's entries written.
func (st store) sync() error {
	d, err := os.Open(st.dir)
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
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

// all reads the journals that there are, oldest first.
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
		if err != nil {
			return nil, fmt.Errorf("reading a journal: %w", err)
		}
		var j journal
		if err := json.Unmarshal(text, &j); err != nil {
			return nil, fmt.Errorf("reading journal %s: %w", path, err)
		}
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b journal) int { return a.Snapshot.Taken.Compare(b.Snapshot.Taken) })
	return all, nil
}

// bootID identifies this boot of the machine.
func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("identifying this boot: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}
