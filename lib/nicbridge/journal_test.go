package nicbridge

import (
	"os"
	"strings"
	"testing"
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
	if len(names) != 2 || names[0] != "breth0.json" || names[1] != "lock" {
		t.Errorf("there are %q", names)
	}
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
