// Package lifeline starts processes that never outlive the program that started
// them, even if that is killed without a chance to clean up.
//
// Each process is the child of a small shell, which holds the reading end of a
// pipe. When the program closes the other end, or dies, the shell sends SIGKILL
// to the process. PR_SET_PDEATHSIG would not do: it follows the thread that
// forked, and in Go threads come and go.
package lifeline

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// script runs "$@" in the background and waits for it or for the end of its own
// standard input, whichever is first.
const script = `exec 3<&0
"$@" </dev/null 3<&- &
pid=$!
(cat <&3; kill -9 $pid) >/dev/null 2>&1 &
watch=$!
exec 3<&-
wait $pid
status=$?
kill -9 $watch
exit $status`

// HearSignals lets programs that are started from now on be stopped by SIGINT and
// SIGHUP even if the one that starts them ignores these since its own start, as by
// nohup(1): what is ignored is inherited, and what is handled is not.
func HearSignals() {
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// A Process is a running program.
type Process struct {
	name   string
	stdin  io.Closer
	done   chan struct{}
	err    error // why it ended, valid when done is closed
	output *buffer
}

// A Command makes an exec.Cmd: exec.Command, or a function that runs the
// program somewhere else, such as in another namespace.
type Command func(name string, args ...string) *exec.Cmd

// Start starts a program by means of command, which is exec.Command if nil. Its
// user must Stop it.
func Start(command Command, name string, args ...string) (*Process, error) {
	if command == nil {
		command = exec.Command
	}
	cmd := command("sh", append([]string{"-c", script, "sh", name}, args...)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p := &Process{name: name, stdin: stdin, done: make(chan struct{}), output: &buffer{}}
	cmd.Stdout, cmd.Stderr = p.output, p.output
	// whoever still holds the output shall not keep us waiting
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Stop kills the process, as by kill -9, and waits for its end.
func (p *Process) Stop() {
	_ = p.stdin.Close() // it may be gone: that is what we want
	<-p.done
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says why the process ended, with the last of what it printed. It is nil
// while the process runs.
func (p *Process) Err() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	err := p.err
	if err == nil {
		err = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended: %w: %s", p.name, err, p.Output())
}

// Output is the last of what the process printed.
func (p *Process) Output() string { return p.output.String() }

// A buffer keeps the last 64 KiB that were written to it.
type buffer struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept.Write(p)
	if excess := b.kept.Len() - 64<<10; excess > 0 {
		b.kept.Next(excess)
	}
	return len(p), nil
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.TrimSpace(b.kept.String())
}
