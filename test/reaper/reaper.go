// Package reaper starts child processes and ends them with the calling program,
// even if that is killed and cannot clean up.
//
// Each process is the child of a small shell holding the read end of a pipe. When
// the calling program closes the write end, or dies, the shell sends SIGKILL to the
// process. PR_SET_PDEATHSIG is no alternative: it fires when the forking thread
// ends, and the Go runtime ends threads at any time.
package reaper

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

// script runs "$@" in the background and waits for its end or for the end of
// standard input.
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

// HearSignals makes child processes started from now on react to SIGINT and SIGHUP
// by default, even if this program was started with these signals ignored, as by
// nohup(1). Children inherit ignored signals, but not handlers (signal(7)).
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
	err    error // reason of the end, valid when done is closed
	output *buffer
}

// A Command returns an exec.Cmd: exec.Command, or a function running the program
// elsewhere, such as in another namespace.
type Command func(name string, args ...string) *exec.Cmd

// Start starts a program with command. Default: exec.Command. The caller must Stop
// it.
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
	// do not wait for other processes holding the output open
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

// Stop kills the process with SIGKILL and waits for its end.
func (p *Process) Stop() {
	_ = p.stdin.Close() // an error means that it has ended already
	<-p.done
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns the reason of the process's end, with the end of its output. It is
// nil while the process runs.
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

// Output returns the end of the process's output.
func (p *Process) Output() string { return p.output.String() }

// A buffer keeps the last 64 KiB written to it.
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
