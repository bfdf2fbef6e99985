package main

import (
	"bufio"
	"bytes"
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

	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/world"
)

// keeper is the command of the background process.
const keeper = "keep"

// readyLine is the keeper's last line of output to its parent.
const readyLine = "\x00ready"

// goneTimeout bounds the removal of a cluster.
const goneTimeout = 30 * time.Second

// keptDir is the directory of a kept cluster. There is at most one such cluster.
func keptDir() string { return filepath.Join(os.TempDir(), "ovn-k8s-demo") }

func stateFile() string { return filepath.Join(keptDir(), "state.json") }

// A state identifies the resources of a kept cluster, for down.
type state struct {
	// Keeper is the background process.
	Keeper process
	// Processes are its children. All other processes descend from them.
	Processes []process
	// Namespaces are the hosts' namespaces, as in /proc/PID/ns.
	Namespaces []string
}

// A process is identified by its PID and its start time, because PIDs are reused.
type process struct {
	PID     int
	Started string // in clock ticks since boot
}

// identify returns the process with a PID. If there is none, the result is not
// alive.
func identify(pid int) process {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{PID: pid}
	}
	// the name in parentheses may contain any byte: see proc(5)
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	return process{PID: pid, Started: fields[22-3]}
}

// alive reports whether p runs or is a zombie.
func (p process) alive() bool { return p.Started != "" && identify(p.PID) == p }

// detach starts a keeper and prints its output until the cluster is up.
func detach(ctx context.Context, bin string, say sayer) error {
	if s, err := recall(); err == nil && s.Keeper.alive() {
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

// keep starts a cluster and keeps it until a signal arrives.
func keep(ctx context.Context, bin string, say sayer) error {
	dir := keptDir()
	if err := os.RemoveAll(dir); err != nil { // left by a killed keeper
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := (state{Keeper: identify(os.Getpid())}).write(); err != nil {
		return err
	}
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

// becomeQuiet redirects standard output and standard error from the user's terminal
// to a file.
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

// remember saves the state of w.
func remember(w *world.World) error {
	s := state{Keeper: identify(os.Getpid())}
	var err error
	if s.Processes, err = children(s.Keeper.PID); err != nil {
		return err
	}
	hosts := []*host.Host{w.Outside}
	for _, n := range w.Nodes {
		hosts = append(hosts, n.Host)
	}
	for _, h := range hosts {
		for _, kind := range []string{"net", "mnt", "pid"} {
			space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", h.PID(), kind))
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
	return s.write()
}

func (s state) write() error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(stateFile(), text, 0o644)
}

// recall reads the saved state.
func recall() (state, error) {
	var s state
	text, err := os.ReadFile(stateFile())
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("reading %s: %w", stateFile(), err)
	}
	return s, nil
}

// children returns the child processes of all threads of pid.
func children(pid int) ([]process, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	var found []process
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(field); err == nil {
				found = append(found, identify(n))
			}
		}
	}
	return found, nil
}

// hint prints commands for exploring the cluster.
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
on TCP and UDP port 8080 with its name, whatever its image. Services, too:

  kubectl create deployment shop --image=none --replicas=3
  kubectl expose deployment shop --type=NodePort --port=80 --target-port=8080
  %[2]s ovs-appctl -t ovn-k8s-watcher service/show default/shop
  %[2]s bash -c 'exec 3<>/dev/tcp/CLUSTER-IP/80; echo hello >&3; head -n1 <&3'

Remove everything with: make demo-down

`, w.Kube.Kubeconfig, enter(w.Master()), enter(minion))
}

// down ends the keeper and waits until all its resources are gone.
func down(ctx context.Context, say sayer) error {
	s, err := recall()
	if errors.Is(err, fs.ErrNotExist) {
		say("no cluster is up")
		return os.RemoveAll(keptDir())
	}
	if err != nil {
		return err
	}
	if s.Keeper.alive() {
		say("ending process %d, on which everything hangs", s.Keeper.PID)
		if err := syscall.Kill(s.Keeper.PID, syscall.SIGTERM); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit.Of(goneTimeout))
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

// left names the remaining resources.
func (s state) left() []string {
	var left []string
	for _, p := range append([]process{s.Keeper}, s.Processes...) {
		if p.alive() {
			left = append(left, fmt.Sprintf("process %d", p.PID))
		}
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
