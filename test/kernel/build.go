package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Job is a program for the machine.
type Job struct {
	Dir  string
	Args []string
	Env  []string
	// Timeout bounds the program.
	Timeout time.Duration
}

// programs are the directories of what tests, and the bench, start. This program does not link the lists in test/world and
// test/bench/programs: it has to start fast in the machine.
var programs = []string{
	"ovn-k8s-overlay", "ovn-k8s-watcher", "ovn-k8s-cni-overlay", "ovn-k8s-gateway-helper", "ovn-k8s-util", "ovnkube", "ovn-k8s-cni-shim",
	"test/roles", "test/cniserver", "test/bench/minimal",
}

// build builds the programs and the tests of a turn.
func (p place) build(ctx context.Context, t turn, say sayer) (Job, error) {
	say("building %s", t.pkg)
	wanted := slices.Clone(programs)
	job := Job{Dir: filepath.Join(p.source, t.pkg), Timeout: t.timeout()}
	if t.program() {
		wanted = append(wanted, t.pkg)
		job.Args = append([]string{p.path("bin", path.Base(t.pkg))}, p.args...)
	}
	if t.pkg == demo {
		job.Args = append(job.Args, "-bin", p.path("bin"))
	}
	if t.ovnkube {
		job.Env = append(job.Env, "OVNKUBE=1")
	}
	args := []string{"build", "-trimpath", "-o", p.path("bin") + "/"}
	for _, dir := range wanted {
		args = append(args, "./"+dir)
	}
	if err := errors.Join(p.linkPackages(), p.gotool(ctx, args...)); err != nil || t.program() {
		return job, err
	}
	binary := p.path("tests", strings.ReplaceAll(t.pkg, "/", "_")+".test")
	if err := p.gotool(ctx, "test", "-c", "-trimpath", "-o", binary, "./"+t.pkg); err != nil {
		return job, err
	}
	job.Args = []string{binary, "-test.v", "-test.count=1", "-test.timeout=0", "-test.run=" + t.pattern()}
	return job, nil
}

// linkPackages links the packages of network managers, which test/boot has fetched, into the machine's directory of programs:
// that is OVNK8S_TEST_BIN there.
func (p place) linkPackages() error {
	packages, err := filepath.Glob(filepath.Join(filepath.Dir(p.work), "*.tar"))
	for _, file := range packages {
		link := p.path("bin", filepath.Base(file))
		_ = os.Remove(link)
		err = errors.Join(err, os.Link(file, link))
	}
	return err
}

func (p place) gotool(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.source, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running go %s: %w", strings.Join(args[:2], " "), err)
	}
	return nil
}

// standIn is the program "go" in the machine: it "builds" by copying the files built
// outside.
func standIn(args []string) error {
	p, err := guestPlace()
	if err != nil {
		return err
	}
	at := slices.Index(args, "-o")
	switch {
	case len(args) == 0:
	case args[0] == "env":
		fmt.Println(filepath.Join(p.source, "go.mod"))
		return nil
	case args[0] == "build" && at > 0 && at+1 < len(args):
		return p.deliver(args[at+1], args[at+2:])
	}
	return fmt.Errorf("go %s does not run in the virtual machine", strings.Join(args, " "))
}

// deliver copies programs to a directory, with a "/" at the end, or to a file.
func (p place) deliver(to string, packages []string) error {
	for _, pkg := range packages {
		if strings.HasPrefix(pkg, "-") {
			continue
		}
		name, target := filepath.Base(pkg), to
		if strings.HasSuffix(to, "/") {
			target = filepath.Join(to, name)
		}
		from := p.path("bin", name)
		if filepath.Clean(target) == from {
			continue
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return fmt.Errorf("%s was not built for the virtual machine: %w", pkg, err)
		}
		if err := os.WriteFile(target, text, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// write writes the job for the machine.
func (j Job) write(w io.Writer) error { return json.NewEncoder(w).Encode(j) }
