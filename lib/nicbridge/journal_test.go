package nicbridge

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ovn-k8s/test/limit"
	"ovn-k8s/test/require"
)

func TestUnfinishedJournalsGoWithTheNextRun(t *testing.T) {
	st := store{t.TempDir()}
	if err := st.write(journal{Snapshot: Snapshot{Bridge: "breth0"}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(st.dir+"/"+unfinished+"123", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	unlock, err := st.lock()
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	entries, err := os.ReadDir(st.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"breth0.json", "lock", "working"}) {
		t.Errorf("there are %q", names)
	}
}

// A move beside another one begins when that is done, and says once that it waits: a killed process may have a watchdog at work.
func TestAMoveWaitsForAnother(t *testing.T) {
	st := store{t.TempDir()}
	unlock, err := st.lock()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit.Of(10*time.Second))
	defer cancel()
	said := 0
	s := session{store: st, Command: Command{Err: onLine(func() {
		said++
		unlock()
	})}}
	now, err := s.lock(ctx)
	if err != nil || said != 1 {
		t.Fatalf("%v, %d lines", err, said)
	}
	defer now()
	ended, end := context.WithCancel(t.Context())
	s.Err = onLine(end)
	if _, err := s.lock(ended); !errors.Is(err, errBusy) {
		t.Errorf("the lock of another, when the command ends: %v", err)
	}
}

// An onLine calls a function for each line written to it.
type onLine func()

func (f onLine) Write(text []byte) (int, error) {
	f()
	return len(text), nil
}

// A user of the host who locks all that a user may open does not hold up moves.
func TestLocksOfUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		require.Nothing(t, require.Node, "root")
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	st := store{filepath.Join(dir, "ovn-k8s-util")}
	unlock, err := st.lock()
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	files, err := filepath.Glob(st.dir + "/*")
	if err != nil || !lockedByUser(t, st.dir) {
		t.Fatalf("a user cannot lock %s: %v", st.dir, err)
	}
	for _, path := range files {
		lockedByUser(t, path)
	}
	done := make(chan error, 1)
	go func() {
		unlock, err := st.lock()
		if err == nil {
			unlock()
		}
		done <- err
	}()
	select {
	case err = <-done:
	case <-time.After(limit.Of(10 * time.Second)):
		t.Fatal("a move waits for a user")
	}
	if err != nil {
		t.Error(err)
	}
}

// lockedByUser lets another user lock a file until the end of the test, and reports whether that is possible.
func lockedByUser(t *testing.T, path string) bool {
	t.Helper()
	cmd := exec.Command("flock", path, "sh", "-c", "echo locked; exec sleep inf")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Pdeathsig: syscall.SIGKILL, Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	line, _ := bufio.NewReader(out).ReadString('\n')
	return line == "locked\n"
}

// The disk becomes full during a move: steps without a need for space are done, and the rest stays as before.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reset()
	if err := w.batch([]string{"address add 10.0.0.5/24 dev eth0", "route add default via 10.0.0.1 dev eth0"}); err != nil {
		t.Fatal(err)
	}
	w.script("mkdir /run/disk; mount -t tmpfs -o size=256k tmpfs /run/disk")
	w.s.store = store{w.h.Path("/run/disk")}
	fill := func(st Step) error {
		if st.Do == settle {
			w.script("cat /dev/zero >/run/disk/full 2>/dev/null || true")
		}
		return nil
	}
	for _, c := range []struct {
		direction Direction
		fails     bool
	}{{ToBridge, false}, {ToNIC, true}} {
		before := w.state()
		w.s.mover.before = fill
		err := w.move(c.direction)
		w.s.mover.before = nil
		w.script("rm /run/disk/full")
		if c.fails {
			if err == nil || !strings.Contains(err.Error(), "no space left on device: breth0 is as it was before") {
				t.Errorf("%s: %v", c.direction, err)
			}
			w.same("after a full disk", before, w.state())
		} else if err != nil {
			t.Errorf("%s: %v", c.direction, err)
		}
		if left, err := w.s.store.all(); err != nil || len(left) > 0 {
			t.Errorf("%s: journals %v: %v", c.direction, left, err)
		}
	}
	if err := w.move(ToNIC); err != nil {
		t.Error(err)
	}
}

// The error of a journal that cannot be written names the directory, and is the same at each try.
func TestAJournalThatCannotBeWritten(t *testing.T) {
	st := store{t.TempDir() + "/missing"}
	want := "writing the journal of a move in " + st.dir + ": no such file or directory"
	if err := st.write(journal{}); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// newStore makes a directory for journals, and returns the ID of this boot, too.
func newStore(t *testing.T) (st store, boot string) {
	t.Helper()
	t.Setenv("OVS_DBDIR", t.TempDir())
	st = store{stateDir()}
	if err := os.Mkdir(st.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	return st, boot
}

// A program confirms its own moves, and not those of an operator or of a former release, with no program in the journal. A
// waiting move is not interrupted.
func TestUnconfirmed(t *testing.T) {
	st, boot := newStore(t)
	write := func(bridge, by, boot string, deadline time.Duration) {
		t.Helper()
		if err := st.write(journal{Phase: unconfirmed, Boot: boot, By: by, Deadline: time.Now().Add(deadline), Snapshot: Snapshot{Bridge: bridge}}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, interrupted bool) {
		t.Helper()
		bridges, some, err := Unconfirmed("ovnkube")
		if err != nil || !slices.Equal(bridges, []string{"breth0"}) || some != interrupted {
			t.Errorf("%s: %q, interrupted: %v, %v", what, bridges, some, err)
		}
	}
	write("breth0", "ovnkube", boot, time.Hour)
	write("breth1", "", boot, time.Hour)
	expect("moves that wait", false)
	write("breth2", "ovnkube", boot, -time.Hour)
	expect("a move past its deadline", true)
	write("breth2", "ovnkube", "the one before", time.Hour)
	expect("a move before a reboot", true)
}

// A watchdog undoes later moves of its command first, but none that waits. It leaves older ones.
func TestTheWatchdogOfOneOfSeveralMoves(t *testing.T) {
	st, boot := newStore(t)
	now := time.Now()
	for n, bridge := range []string{"breth0", "breth1", "breth2"} {
		j := journal{Phase: unconfirmed, Boot: boot, Deadline: now.Add(-time.Hour), Snapshot: Snapshot{Bridge: bridge, Taken: now.Add(time.Duration(n) * time.Second)}}
		if err := st.write(j); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want ...string) {
		t.Helper()
		due, err := undecided(t.Context(), "breth1")
		if err != nil {
			t.Fatal(err)
		}
		all, err := st.all()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, j := range all {
			if ok, err := due(j); ok && err == nil {
				got = append(got, j.Snapshot.Bridge)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q are undone, want %q", got, want)
		}
	}
	expect("breth2", "breth1")
	soon := time.Now().Add(100 * time.Millisecond)
	if err := st.postpone(soon); err != nil {
		t.Fatal(err)
	}
	expect("breth2", "breth1")
	if time.Now().Before(soon) {
		t.Error("a watchdog did not wait for the deadline")
	}
	later, err := st.find("breth2")
	if err != nil {
		t.Fatal(err)
	}
	later.Deadline = now.Add(time.Hour)
	if err := st.write(*later); err != nil {
		t.Fatal(err)
	}
	expect("breth1")
}

// A move to be undone cannot be confirmed, and its journal stays.
func TestConfirmingTooLate(t *testing.T) {
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, c := range []struct {
		phase    phase
		boot     string
		deadline time.Time
		want     string
	}{
		{unconfirmed, boot, now.Add(time.Hour), ""},
		{unconfirmed, boot, now.Add(-time.Hour), "its time was over at " + now.Add(-time.Hour).Format(time.TimeOnly)},
		{unconfirmed, "the one before", now.Add(time.Hour), "the host was restarted since"},
		{changing, boot, now.Add(-time.Hour), "its time was over at "},
		{changing, boot, now.Add(time.Hour), "it was interrupted"},
		{changing, boot, time.Time{}, "it was interrupted"},
		{changed, boot, now.Add(-time.Hour), "nothing waits for confirm"},
	} {
		var out strings.Builder
		s := session{store: store{t.TempDir()}, limits: usual(), Command: Command{Out: &out}}
		j := journal{Direction: ToBridge, Phase: c.phase, Boot: c.boot, Deadline: c.deadline, Snapshot: Snapshot{NIC: "eth0", Bridge: "breth0", From: "eth0"}}
		if err := s.store.write(j); err != nil {
			t.Fatal(err)
		}
		err := s.confirm(t.Context())
		left, failed := s.store.all()
		if failed != nil {
			t.Fatal(failed)
		}
		if c.want == "" {
			if err != nil || out.String() != "nics-to-bridge of eth0 is confirmed\n" || len(left) > 0 {
				t.Errorf("a move that waits: %v, %q, %d journals", err, &out, len(left))
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || out.Len() > 0 || len(left) != 1 {
			t.Errorf("%s until %v: %v, want %q; %d journals", c.phase, c.deadline, err, c.want, len(left))
		}
	}
}
