package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ovn-k8s/test/world"
)

// keeper is the command of the background process.
const keeper = "keep"

// readyLine is the keeper's last word to the one who started it.
const readyLine = "\x00ready"

// goneTimeout is how long everything may take to go.
const goneTimeout = 30 * time.Second

// keptDir is where a kept cluster has its files: one at a time.
func keptDir() string { return filepath.Join(os.TempDir(), "ovn-k8s-demo") }

func stateFile() string { return filepath.Join(keptDir(), "state.json") }

// A state is what down needs to know.
type state struct {
	// PID is the keeper.
	PID int
	// Processes are those that everything else is a child of.
	Processes []int
	// Namespaces are those of the hosts, as /proc/PID/ns says.
	Namespaces []string
}

// detach starts a keeper and passes on what it says until the cluster is up.
func detach(ctx context.Context, bin string, say sayer) error {
	if _, err := os.Stat(stateFile()); err == nil {
		return errors.New("a cluster is up already: remove it with make demo-down")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-bin", bin, keeper)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == readyLine {
			return cmd.Process.Release()
		}
		fmt.Println(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		return errFailed
	}
	return nil
}

// keep brings a cluster up and keeps it until a signal.
func keep(ctx context.Context, bin string, say sayer) error {
	dir := keptDir()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w, err := show(ctx, dir, bin, say)
	if w == nil {
		return err
	}
	defer w.Close()
	if err != nil && ctx.Err() == nil {
		say("%v: keeping it up for you to look", err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := remember(w); err != nil {
		return err
	}
	hint(w)
	fmt.Println(readyLine)
	if err := becomeQuiet(filepath.Join(dir, "log")); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// becomeQuiet leads the standard streams, which are somebody's terminal, to a
// file.
func becomeQuiet(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, fd := range []int{1, 2} {
		if err := unix.Dup2(int(f.Fd()), fd); err != nil {
			return err
		}
	}
	return nil
}

// remember writes down what there is.
func remember(w *world.World) error {
	s := state{PID: os.Getpid()}
	pids, err := children(s.PID)
	if err != nil {
		return err
	}
	s.Processes = pids
	for _, n := range w.Nodes {
		for _, kind := range []string{"net", "mnt", "pid"} {
			space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", n.PID(), kind))
			if err != nil {
				return err
			}
			s.Namespaces = append(s.Namespaces, space)
		}
	}
	space, err := os.Readlink(w.Fabric.Netns())
	if err != nil {
		return err
	}
	s.Namespaces = append(s.Namespaces, space)
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(stateFile(), text, 0o644)
}

// children are the processes that any thread of pid started.
func children(pid int) ([]int, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(field); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids, nil
}

// hint says what to look at.
func hint(w *world.World) {
	enter := func(n *world.Node) string { return fmt.Sprintf("nsenter -t %d -a", n.PID()) }
	minion := w.Nodes[1]
	fmt.Printf(`
The cluster stays up. Look at it:

  export KUBECONFIG=%s
  kubectl get pods -o wide                       # a pod's addresses: kubectl get pod minion1-a -o yaml
  %[2]s ovn-nbctl show             # the master: databases and watcher
  %[2]s ovs-appctl -t ovn-k8s-watcher list-commands
  %[2]s less /var/log/openvswitch/ovn-k8s-watcher.log
  %[3]s ovs-vsctl show             # a minion
  %[3]s sh -c 'ip netns exec $(ip netns | head -n1 | cut -d" " -f1) ip addr'   # a pod
  %[3]s                            # a shell there

Create pods with kubectl, bound by the scheduler or by spec.nodeName: each answers
on TCP and UDP port 8080 with its name. Remove everything with: make demo-down

`, w.Kube.Kubeconfig, enter(w.Master()), enter(minion))
}

// down ends the keeper and checks that nothing is left.
func down(ctx context.Context, say sayer) error {
	text, err := os.ReadFile(stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		say("no cluster is up")
		return os.RemoveAll(keptDir())
	}
	if err != nil {
		return err
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("reading %s: %w", stateFile(), err)
	}
	if isKeeper(s.PID) {
		say("ending process %d, on which everything hangs", s.PID)
		if err := syscall.Kill(s.PID, syscall.SIGTERM); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, goneTimeout)
	defer cancel()
	for {
		left := s.left()
		if len(left) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("still there: %s", strings.Join(left, ", "))
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := os.RemoveAll(keptDir()); err != nil {
		return err
	}
	say("gone: %d processes with their children, %d namespaces with their links and mounts, %s",
		len(s.Processes)+1, len(s.Namespaces), keptDir())
	return nil
}

// isKeeper tells whether a process is a keeper, and not another that got its
// number since.
func isKeeper(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.HasSuffix(string(text), "\x00"+keeper+"\x00")
}

// left names what is not gone.
func (s state) left() []string {
	var left []string
	if isKeeper(s.PID) {
		left = append(left, fmt.Sprintf("process %d", s.PID))
	}
	links, err := filepath.Glob("/proc/[0-9]*/ns/*")
	if err != nil {
		return append(left, err.Error())
	}
	for _, link := range links {
		space, err := os.Readlink(link)
		if err == nil && slices.Contains(s.Namespaces, space) {
			left = append(left, link+" in "+space)
		}
	}
	return left
}
