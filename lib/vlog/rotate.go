package vlog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A Rotation limits the size of the log file: a full one becomes a backup, FILE-TIME with the time of its end in UTC, and
// the log goes on in a new file. The zero Rotation leaves this to logrotate(8), whose *.log does not match backups.
type Rotation struct {
	// Size is that of a full file in bytes. 0: there is no rotation.
	Size int64
	// Backups is the number of backups to keep, 0 for all, and Age the time for which they are kept, 0 for ever. Others are
	// removed when the file is opened.
	Backups int
	Age     time.Duration
}

// backupTime is the time in the name of a backup.
const backupTime = "2006-01-02T15-04-05.000"

// A fileWriter writes to the log file. The caller holds Log.mu.
type fileWriter struct {
	*Log
	news error // of a rotation that failed, once
}

// Write implements io.Writer.
func (w *fileWriter) Write(b []byte) (int, error) {
	if w.rotation.Size > 0 {
		err := w.makeRoom(len(b))
		if !w.stuck {
			w.news = err
		}
		w.stuck = err != nil
	}
	return w.file.Write(b)
}

// makeRoom rotates the file if n bytes are too many for it. On an error the log goes on in the present file. Another
// process, such as the monitor of a daemon, may have the same log and rotate it: then the new file is used.
func (l *Log) makeRoom(n int) error {
	own, err := l.file.Stat()
	if err != nil {
		return err
	}
	full := own.Size() > 0 && own.Size()+int64(n) > l.rotation.Size
	if full {
		unlock, ok := l.lockFile()
		if !ok {
			return nil
		}
		defer unlock()
	}
	there, err := os.Lstat(l.path)
	switch {
	case err == nil && !os.SameFile(own, there):
		return l.openFile(0)
	case err == nil && full:
		return l.rotate(own)
	case full:
		return l.openFile(0)
	}
	return nil // a file that was only renamed is used until vlog/reopen, as logrotate wants it
}

// lockFile locks the present file, unless another process does. The end of the file unlocks it, too.
func (l *Log) lockFile() (unlock func(), ok bool) {
	f := l.file
	if errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
		return nil, false
	}
	return func() {
		if l.file == f {
			_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		}
	}, true
}

// rotate makes the present file a backup. The new file has its owner and mode. The caller has locked the file.
func (l *Log) rotate(own fs.FileInfo) error {
	if err := os.Rename(l.path, l.nextBackup()); err != nil {
		return err
	}
	err := l.openFile(os.O_EXCL)
	if errors.Is(err, fs.ErrExist) { // made by another process
		return l.openFile(0)
	}
	if s, ok := own.Sys().(*syscall.Stat_t); err == nil && ok {
		_ = l.file.Chown(int(s.Uid), int(s.Gid)) // only root may
		_ = l.file.Chmod(own.Mode().Perm())
	}
	return err
}

// A backup is a former log file.
type backup struct {
	path  string
	ended time.Time
}

// backups lists the backups, the oldest first.
func (l *Log) backups() (all []backup) {
	dir, prefix := filepath.Dir(l.path), filepath.Base(l.path)+"-"
	entries, _ := os.ReadDir(dir) // by name
	for _, e := range entries {
		text, ours := strings.CutPrefix(e.Name(), prefix)
		ended, err := time.Parse(backupTime, text)
		if ours && err == nil && e.Type().IsRegular() {
			all = append(all, backup{filepath.Join(dir, e.Name()), ended})
		}
	}
	return all
}

// nextBackup is the name of the next backup. It is after all others, even if the clock was set back.
func (l *Log) nextBackup() string {
	now := time.Now().UTC().Truncate(time.Millisecond)
	if all := l.backups(); len(all) > 0 {
		if last := all[len(all)-1].ended; !last.Before(now) {
			now = last.Add(time.Millisecond)
		}
	}
	return l.path + "-" + now.Format(backupTime)
}

// removeBackups removes backups beyond their number or age.
func (l *Log) removeBackups() {
	r, all := l.rotation, l.backups()
	for i, b := range all {
		if r.Backups > 0 && i < len(all)-r.Backups || r.Age > 0 && time.Since(b.ended) > r.Age {
			_ = os.Remove(b.path)
		}
	}
}
