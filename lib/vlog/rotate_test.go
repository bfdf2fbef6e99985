package vlog

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// files are the names in the directory of a log file, with the file itself as the last one: backups are before it.
func files(t *testing.T, file string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(file) {
			all = append(all, filepath.Join(filepath.Dir(file), e.Name()))
		}
	}
	return append(all, file)
}

// numbers are the values of n= in files, one after the other.
func numbers(t *testing.T, files ...string) (all []int) {
	t.Helper()
	for _, f := range files {
		for l := range strings.Lines(lines(t, read(t, f))) {
			_, text, ok := strings.Cut(strings.TrimSpace(l), " n=")
			n := 0
			if _, err := fmt.Sscan(text, &n); !ok || err != nil {
				t.Errorf("%s: line %q", f, l)
			}
			all = append(all, n)
		}
	}
	return all
}

// say logs lines with the numbers from first to last.
func say(l *Log, first, last int) {
	for n := first; n <= last; n++ {
		l.Module("watcher").WithField("n", n).Info("a line")
	}
}

// upTo has the numbers from first to last.
func upTo(first, last int) (all []int) {
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}

// Each file is full before the next one begins, and has at most its size. All lines are there, in their order.
func TestRotation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.log")
	l := open(t, io.Discard, Options{LogFile: file, Rotation: Rotation{Size: 1000}})
	say(l, 1, 500)
	all := files(t, file)
	if got := numbers(t, all...); !slices.Equal(got, upTo(1, 500)) {
		t.Errorf("lines %d", got)
	}
	line := len(read(t, file)) / len(numbers(t, file))
	for _, f := range all {
		if n := len(read(t, f)); n > 1000 || f != file && n <= 1000-line-2 {
			t.Errorf("%s has %d bytes", f, n)
		}
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%v, %v", info, err)
		}
	}
	if ok, _ := filepath.Match("*.log", filepath.Base(all[0])); ok {
		t.Errorf("logrotate would rotate %s", all[0])
	}
}

// A file of a former process counts. A line larger than a file is written.
func TestRotationOfAFormerFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.log")
	former := strings.Repeat("a line of a former process\n", 30)
	if err := os.WriteFile(file, []byte(former), 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, io.Discard, Options{LogFile: file, Rotation: Rotation{Size: int64(len(former))}})
	if got := read(t, file); got != former {
		t.Errorf("rotated without a line: %q", got)
	}
	l.Module("watcher").Info(strings.Repeat("x", len(former)))
	all := files(t, file)
	if len(all) != 2 || read(t, all[0]) != former || strings.Count(read(t, file), "x") != len(former) {
		t.Errorf("%q", all)
	}
}

// The new file is as accessible as the former one, as with logrotate's create.
func TestRotationKeepsOwnerAndMode(t *testing.T) {
	group := os.Getegid()
	if os.Geteuid() == 0 {
		group = 4
	}
	file := filepath.Join(t.TempDir(), "x.log")
	l := open(t, io.Discard, Options{LogFile: file, Rotation: Rotation{Size: 1000}})
	for _, err := range []error{os.Chown(file, -1, group), os.Chmod(file, 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	say(l, 1, 50)
	for _, f := range files(t, file) {
		info, err := os.Stat(f)
		if err != nil || info.Mode().Perm() != 0o644 || info.Sys().(*syscall.Stat_t).Gid != uint32(group) {
			t.Errorf("%s: %v, %v", f, info.Mode(), err)
		}
	}
}

// The latest backups are kept, as many as wanted. What has not the name of a backup, or is no file, stays.
func TestNumberOfBackups(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.log")
	others := []string{"x.log-1", "x.log-2026-01-02T15-04-05.000.gz", "x.log.1", "y.log-2026-01-02T15-04-05.000", "x.log-2026-01-02"}
	for _, name := range others {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const folder, link = "x.log-2026-01-02T15-04-05.000", "x.log-2026-01-02T15-04-05.001"
	for _, err := range []error{os.Mkdir(filepath.Join(dir, folder), 0o700), os.Symlink("x.log", filepath.Join(dir, link))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, io.Discard, Options{LogFile: file, Rotation: Rotation{Size: 1000, Backups: 3}})
	say(l, 1, 500)
	var backups []string
	for _, f := range files(t, file) {
		if name := filepath.Base(f); slices.Contains(append(others, folder, link), name) {
			others = slices.DeleteFunc(others, func(o string) bool { return o == name })
			continue
		}
		backups = append(backups, f)
	}
	if len(backups) != 4 || len(others) > 0 {
		t.Fatalf("%q are there, %q are gone", backups, others)
	}
	got := numbers(t, backups...)
	if want := upTo(got[0], 500); !slices.Equal(got, want) || got[0] == 1 {
		t.Errorf("lines %d", got)
	}
}

// Old backups go when the log is opened, and the next one is later than all others, even if the clock was set back.
func TestAgeOfBackups(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.log")
	at := func(age time.Duration) string {
		name := file + "-" + time.Now().Add(-age).UTC().Format(backupTime)
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	at(50 * time.Hour)
	young, future := at(46*time.Hour), at(-time.Hour)
	l := open(t, io.Discard, Options{LogFile: file, Rotation: Rotation{Size: 1000, Age: 48 * time.Hour}})
	if got := files(t, file); !slices.Equal(got, []string{young, future, file}) {
		t.Errorf("%q", got)
	}
	say(l, 1, 50)
	got := files(t, file)
	if !slices.Equal(got[:2], []string{young, future}) || !slices.Equal(numbers(t, got[2:]...), upTo(1, 50)) {
		t.Errorf("%q", got)
	}
}

// logrotate renames the file, may create a new one, and runs vlog/reopen: the program makes no file in between.
func TestRotationBesideLogrotate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.log")
	l := open(t, io.Discard, Options{LogFile: file, Rotation: Rotation{Size: 1000}, Verbose: []string{"vlog:off"}})
	say(l, 1, 3)
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	say(l, 4, 5)
	if _, err := os.Lstat(file); !os.IsNotExist(err) {
		t.Errorf("the file is there: %v", err)
	}
	if _, err := run(t, l, "vlog/reopen"); err != nil {
		t.Fatal(err)
	}
	say(l, 6, 7)
	if got := numbers(t, file+".1", file); !slices.Equal(got, upTo(1, 7)) {
		t.Errorf("lines %d", got)
	}
	if err := os.Rename(file, file+".2"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o640); err != nil { // create
		t.Fatal(err)
	}
	say(l, 8, 9)
	if _, err := run(t, l, "vlog/close"); err != nil {
		t.Fatal(err)
	}
	say(l, 0, 100)
	if got := numbers(t, file+".1", file+".2", file); !slices.Equal(got, upTo(1, 9)) {
		t.Errorf("lines %d", got)
	}
}

// A monitor and its worker have the same log.
func TestRotationByTwoProcesses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.log")
	o := Options{LogFile: file, Rotation: Rotation{Size: 1000}}
	var wg sync.WaitGroup
	for i := range 4 {
		l := open(t, io.Discard, o)
		wg.Go(func() { say(l, 1000*i+1, 1000*i+200) })
	}
	wg.Wait()
	got := numbers(t, files(t, file)...)
	slices.Sort(got)
	if want := slices.Concat(upTo(1, 200), upTo(1001, 1200), upTo(2001, 2200), upTo(3001, 3200)); !slices.Equal(got, want) {
		t.Errorf("%d lines: %d", len(got), got)
	}
}

// While the file cannot be rotated, it grows; one line says so.
func TestRotationThatFails(t *testing.T) {
	dir := t.TempDir() + "/log"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var console bytes.Buffer
	l := open(t, &console, Options{LogFile: dir + "/x.log", Rotation: Rotation{Size: 1000}, Verbose: []string{"vlog:file:off"}})
	told := func() int { return strings.Count(console.String(), "cannot be rotated") }
	say(l, 1, 2)
	if err := os.Rename(dir, dir+".moved"); err != nil {
		t.Fatal(err)
	}
	say(l, 3, 50)
	if got := numbers(t, dir+".moved/x.log"); !slices.Equal(got, upTo(1, 50)) || told() != 1 {
		t.Errorf("lines %d\n%s", got, console.String())
	}
	if err := os.Rename(dir+".moved", dir); err != nil {
		t.Fatal(err)
	}
	say(l, 51, 60)
	all := files(t, dir+"/x.log")
	if got := numbers(t, all...); !slices.Equal(got, upTo(1, 60)) || len(all) < 2 || told() != 1 {
		t.Errorf("%q, lines %d\n%s", all, got, console.String())
	}
	for _, err := range []error{os.Remove(dir + "/x.log"), os.Symlink(dir+"/precious", dir+"/x.log")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	say(l, 61, 70)
	if _, err := os.Lstat(dir + "/precious"); err == nil || told() != 2 {
		t.Errorf("a link: %v\n%s", err, console.String())
	}
}
