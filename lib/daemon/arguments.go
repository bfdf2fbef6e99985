package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	hiddenEnv = "OVN_K8S_DAEMON_ARGUMENTS" // the child has a file with its arguments
	hiddenFD  = parentFD + 1               // the file: exec.Cmd.ExtraFiles[1]
)

// Arguments are the arguments of a process with secrets among them, which ps(1) and /proc/PID/cmdline do not show.
type Arguments struct {
	// All are the arguments without the name of the program.
	All []string
	// Secrets are the values hidden.
	Secrets []string
}

// HideArguments returns the arguments of this process, and overwrites the values of options that are secret where other
// processes see them. A process with a secret leaves no core. secret gets the name of an option without dashes. It belongs at
// the begin of main. A Service with these Arguments passes them to its other processes in a file without a name
// (memfd_create(2)).
func HideArguments(secret func(option string) bool) Arguments {
	if os.Getenv(hiddenEnv) != "" {
		_ = os.Unsetenv(hiddenEnv)
		forbidCore()
		if a, err := readArguments(os.NewFile(hiddenFD, "arguments")); err == nil {
			return a
		}
	}
	var a Arguments
	hideNext := false
	for _, arg := range os.Args[1:] {
		a.All = append(a.All, strings.Clone(arg))
		value := ""
		if hideNext {
			value = arg
		}
		if name, ok := strings.CutPrefix(arg, "-"); ok {
			name, text, hasValue := strings.Cut(strings.TrimPrefix(name, "-"), "=")
			isSecret := secret(name)
			if isSecret && hasValue {
				value = text
			}
			hideNext = isSecret && text == "" // after "--token=" as well: a word there is a token with a space before it
		} else {
			hideNext = false
		}
		if value != "" {
			forbidCore()
			a.Secrets = append(a.Secrets, strings.Clone(value))
			overwrite(value)
		}
	}
	return a
}

// forbidCore has the kernel write no core(5) of this process: a secret stays in its memory. Programs started by it may have
// cores. See PR_SET_DUMPABLE(2const): only root can read its files in /proc and attach a debugger.
func forbidCore() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) } // it cannot fail with 0

// overwrite replaces a string in its memory. Those in os.Args are the process's own arguments: the runtime does not copy
// them (runtime.goargs).
func overwrite(s string) {
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	for i := range b {
		b[i] = '*'
	}
}

// file returns a file with the arguments, for a child.
func (a Arguments) file() (*os.File, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("arguments", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file for arguments: %w", err)
	}
	f := os.NewFile(uintptr(fd), "arguments")
	if _, err := f.Write(text); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("writing arguments: %w", err)
	}
	return f, nil
}

// readArguments reads the file of a parent.
func readArguments(f *os.File) (a Arguments, err error) {
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(text, &a)
}
