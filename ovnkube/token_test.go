package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// canary is the token of these tests.
const canary = "canary-3f9a71c2"

// AC-20: the token is in no output, no log, no command line, no environment of the program, and not in the database, at the
// highest level of details, however it is given; a line recommends the file. Before the first line of output, it is gone from
// the command line.
func TestTheTokenIsNowhere(t *testing.T) {
	for _, spelling := range []string{"-k8s-token " + canary, "--k8s-token=" + canary, "-k8s-token=" + canary, "--k8s-tok " + canary} {
		t.Run(strings.ReplaceAll(spelling, canary, "X"), func(t *testing.T) {
			h := newHost(t)
			h.startSwitch()
			line := "-init-master=n1 -k8s-apiserver=http://127.0.0.1:1 -nb-address=tcp:127.0.0.1:1 -sb-address=tcp:127.0.0.1:1 -loglevel=5 -logfile=" + h.path("log/x.log") + " "
			p, output := h.startMute(strings.Fields(line + spelling))
			shown := func(file string) bool {
				text := h.read(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, file))
				return strings.Contains(text, canary) || file == "cmdline" && !strings.Contains(text, strings.Repeat("*", len(canary)))
			}
			h.eventually("before any output, the command line has stars for the token", func() bool { return !shown("cmdline") })
			output.release()
			for _, text := range []string{"--k8s-api-token-file=FILE", "waiting: "} {
				h.eventually(fmt.Sprintf("it says %q", text), func() bool {
					if shown("cmdline") || shown("environ") {
						t.Fatal("the token is back in the command line or environment")
					}
					return strings.Contains(p.out.String(), text)
				})
			}
			p.stop()
			output.wait()
			h.wantNowhere(p.out.String())
		})
	}
	for name, source := range map[string]func(h *host) (env []string){
		"environment": func(*host) []string { return []string{"K8S_TOKEN=" + canary} },
		"file": func(h *host) []string {
			h.write("etc/openvswitch/ovn_k8s.conf", "[kubernetes]\ntoken="+canary+"\n")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			p := h.start(strings.Fields("-init-master=n1 -k8s-apiserver=http://127.0.0.1:1 -nb-address=tcp:127.0.0.1:1 -loglevel=5 -logfile="+h.path("log/x.log")), source(h)...)
			p.says("waiting: ")
			p.stop()
			h.wantNowhere(p.out.String())
		})
	}
}

// The token is in no message of a start that fails.
func TestTheTokenIsInNoError(t *testing.T) {
	h := newHost(t)
	h.startSwitch()
	for _, line := range []string{
		"", "-init-node=", "-no-such-option", "-init-master=n1 -nb-address=tcp:1", "-init-node=n1 -k8s-kubeconfig=/nowhere",
		"-init-node=n1 -config-file=/nowhere", "-init-node=n1 -cleanup-node=n1", "-init-master=n1 word", "-mtu", "-init-master=n1 -vfoo",
		"-init-master=n1 -pidfile=/nowhere/x.pid", "-init-master=n1 -nb-address=tcp:127.0.0.1:1 -k8s-apiserver=https://user:" + canary + "@a",
		"-init-master=n1 -unixctl=/nowhere/x.ctl", "-remove-node=n1 -nb-address=unix:/nowhere",
	} {
		for _, spelling := range []string{" -k8s-token=" + canary, " --k8s-token " + canary, " -k8s-token= " + canary, " -k8s-tokn=" + canary, " -k8s-tokn " + canary, " -loglevel=9 -k8s-token=" + canary} {
			status, out, errs := h.once(strings.Fields(line + spelling))
			if status == 0 || strings.Contains(out+errs, canary) && !strings.Contains(spelling, "-k8s-tokn ") && line != "-mtu" {
				t.Errorf("%s: status %d, %s%s", line+spelling, status, out, errs)
			}
		}
	}
	for _, token := range []string{canary + " x", canary + "\nx"} {
		if status, out, errs := h.once([]string{"-init-master=n1", "-nb-address=tcp:127.0.0.1:1", "-k8s-token=" + token}); status != 1 || strings.Contains(out+errs, canary) {
			t.Errorf("%q: status %d, %s%s", token, status, out, errs)
		}
	}
	h.wantNowhere("")
}

// The token as an option is in no core, also if a crash is to leave one; a process without it leaves a core.
func TestTheTokenIsInNoCore(t *testing.T) {
	h, output := newHost(t), ""
	crash := func(option string) (dumped bool) {
		p := h.start(strings.Fields(waiting+option), "GOTRACEBACK=crash")
		p.says("waiting: ")
		if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_CORE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil); err != nil {
			t.Fatal(err)
		}
		_ = p.cmd.Process.Signal(syscall.SIGABRT)
		_ = p.cmd.Wait()
		status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || status.Signal() != syscall.SIGABRT || !strings.Contains(p.out.String(), "SIGABRT: abort") {
			t.Fatalf("it ended with %v", p.cmd.ProcessState)
		}
		output = p.out.String()
		return status.CoreDump()
	}
	if crash("-k8s-token=" + canary) {
		t.Error("a process with the token leaves a core")
	}
	h.wantNowhere(output)
	if !crash("-k8s-api-token-file=" + h.write("token", "another")) {
		t.Error("a process without it leaves no core: is kernel.core_pattern empty?")
	}
}

// An output is a pipe that is full until it is released: a process hangs when it writes its first line.
type output struct {
	*host
	r      *os.File
	to     io.Writer
	before int // bytes
	copied chan error
}

// startMute starts ovnkube with such an output.
func (h *host) startMute(line []string) (*process, *output) {
	h.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		h.Fatal(err)
	}
	defer w.Close()
	h.Cleanup(func() { _ = r.Close() })
	p := &process{h, h.command(line), &buffer{}}
	o := &output{host: h, r: r, to: p.out, before: h.fill(w), copied: make(chan error, 1)}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	p.run()
	return p, o
}

// fill fills a pipe, and returns the number of bytes.
func (h *host) fill(w *os.File) (n int) {
	h.Helper()
	c, err := w.SyscallConn()
	if err != nil {
		h.Fatal(err)
	}
	full := c.Control(func(fd uintptr) {
		for err = unix.SetNonblock(int(fd), true); err == nil; {
			var more int
			more, err = unix.Write(int(fd), make([]byte, os.Getpagesize()))
			n += max(more, 0)
		}
	})
	if full != nil || !errors.Is(err, unix.EAGAIN) {
		h.Fatal(full, err)
	}
	return n
}

// release reads what fills the pipe, and then the output of the process.
func (o *output) release() {
	go func() {
		_, err := io.CopyN(io.Discard, o.r, int64(o.before))
		if err == nil {
			_, err = io.Copy(o.to, o.r)
		}
		o.copied <- err
	}()
}

// wait waits for the end of the output.
func (o *output) wait() {
	o.Helper()
	if err := <-o.copied; err != nil {
		o.Error(err)
	}
}

func (h *host) read(name string) string {
	h.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		h.Fatal(err)
	}
	return string(text)
}

// wantNowhere checks that the token is not in a text, in the files of the host except its configuration, or in its database.
func (h *host) wantNowhere(text string) {
	h.Helper()
	if strings.Contains(text, canary) {
		h.Errorf("it is in the output:\n%s", text)
	}
	err := filepath.WalkDir(h.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasSuffix(path, ".conf") && strings.Contains(h.read(path), canary) {
			h.Errorf("it is in %s", path)
		}
		return err
	})
	if err != nil {
		h.Fatal(err)
	}
}
