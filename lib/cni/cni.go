// Package cni is the CNI plugin: it gives a pod's sandbox an interface with the addresses from the pod's annotation.
//
// It follows the CNI specification 1.1.0 and older versions: ADD, DEL, CHECK, GC, STATUS and VERSION. An attachment
// is a veth pair, a port of br-int and, for some runtimes, a link in /var/run/netns. All of it can be found by the
// container's ID alone, so DEL and GC undo an ADD killed at any point.
//
// Only the result or the error goes to standard output; everything else goes to the log file. Error codes of the
// specification: 1 to 7, 11 for conditions that may pass, and for STATUS 50 and 51. Our own, from the Python version:
// 100 and, if Open vSwitch rejects the port, 106.
package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
	"ovn-k8s/lib/vlog"
)

// answerTimeout bounds all commands but ADD, which has a setting of its own. A database that accepts connections
// without answering would block the runtime for good.
const answerTimeout = 25 * time.Second

// errNoAnswer is the error after answerTimeout.
var errNoAnswer = fmt.Errorf("no answer within %v: is ovsdb-server stopped or overloaded?", answerTimeout)

// program is the plugin's name in its log and towards the API server.
const program = "ovn-k8s-cni-overlay"

// Error codes of our own, and for STATUS.
const (
	errFailed      = 100 // as in the Python version: any error without a code
	errPlugging    = 106 // as in the Python version: Open vSwitch rejected the port
	errUnavailable = 50  // STATUS: cannot serve ADD
	errLimited     = 51  // STATUS: also, running containers may have limited connectivity
)

// A Request is a command of a container runtime: section 4 of the specification.
type Request struct {
	Command string // ADD, DEL, CHECK, GC or STATUS
	Args    *skel.CmdArgs
}

// An Answer is the result of a Request, in a version of the specification.
type Answer struct {
	Version string
	Result  types.Result // of ADD; nil: none
	Err     *types.Error // nil: success
}

// Main serves the request of this process's environment and standard input, and returns the exit status: 0, or 1 with an
// error as JSON on standard output. release is the program's version, for people who run it by hand.
func Main(release string) int {
	// The process ends before memory matters; measured, this saves 3 of 20 ms of CPU.
	debug.SetGCPercent(400)
	// A runtime that gives up sends SIGTERM first; then ADD is undone. NotifyContext's stop is not called: the
	// process ends anyway, and stop waits three times for another thread, each time for a turn on a busy machine.
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	answer := Answer{Version: types100.ImplementedSpecVersion}
	serve := func(command string) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error {
			if answer = (Request{command, args}).serve(ctx, types.Result.Print); answer.Err != nil {
				return answer.Err
			}
			return nil
		}
	}
	about := program + " " + release + ": the CNI plugin of ovn-k8s; a container runtime runs it, see docs/install.md"
	err := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: serve("ADD"), Del: serve("DEL"), Check: serve("CHECK"), GC: serve("GC"), Status: serve("STATUS"),
	}, version.All, about)
	if err == nil {
		return 0
	}
	answer.Err = err
	answer.print(os.Stdout)
	return 1
}

// print writes an error as in section 5 of the specification, with the version, which the library omits.
func (a Answer) print(w io.Writer) {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "    ")
	_ = encoder.Encode(struct { // no other place to report an error
		Version string `json:"cniVersion"`
		*types.Error
	}{a.Version, a.Err})
}

// A node is the host of one command.
type node struct {
	started time.Time
	log     *logrus.Entry
	config  config.Config
	// sw is the local Open vSwitch, nil if unreachable. problem is the error of connecting to it or of reading the
	// configuration.
	sw      *vswitch.Switch
	problem error
}

// A command runs after the network configuration was parsed.
type command func(*node, context.Context, *skel.CmdArgs, *types.PluginConf) (types.Result, error)

// commands are those of the specification.
func commands() map[string]command {
	return map[string]command{
		"ADD": (*node).add, "DEL": plain((*node).del), "CHECK": plain((*node).check), "GC": plain((*node).gc), "STATUS": plain((*node).status),
	}
}

// plain is a command without a result.
func plain(run func(*node, context.Context, *skel.CmdArgs, *types.PluginConf) error) command {
	return func(n *node, ctx context.Context, args *skel.CmdArgs, conf *types.PluginConf) (types.Result, error) {
		return nil, run(n, ctx, args, conf)
	}
}

// Serve executes a request. Its only output is the log.
func (r Request) Serve(ctx context.Context) Answer {
	return r.serve(ctx, func(types.Result) error { return nil })
}

// serve executes a request, and calls deliver with the result of ADD. If that fails, it undoes ADD.
func (r Request) serve(ctx context.Context, deliver func(types.Result) error) Answer {
	a := Answer{Version: types100.ImplementedSpecVersion}
	began := time.Now()
	run, known := commands()[r.Command]
	if !known {
		a.Err = types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("unknown command %q: want ADD, DEL, CHECK, GC or STATUS", r.Command), "")
		return a
	}
	conf, err := parseConf(r.Args.StdinData)
	if err != nil {
		a.Err = cniError(err)
		return a
	}
	if slices.Contains(version.All.SupportedVersions(), conf.CNIVersion) {
		a.Version = conf.CNIVersion
	}
	if r.Command != "ADD" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
		defer cancel()
	}
	n, closeNode := open(ctx, r, began)
	defer closeNode()
	result, err := run(n, ctx, r.Args, conf)
	if err == nil && result != nil {
		if a.Result, err = result.GetAsVersion(a.Version); err == nil {
			err = deliver(a.Result)
		}
		if err != nil {
			pod, _ := parsePod(r.Args.Args) // ADD has parsed it
			n.undo(ctx, pod, newAttachment(r.Args, conf))
			a.Result, err = nil, types.NewError(types.ErrIOFailure, "writing the result", err.Error())
		}
	}
	if err != nil {
		a.Err = cniError(err)
		n.log.WithFields(logrus.Fields{"code": a.Err.Code, "container": r.Args.ContainerID}).Warnf("%s: %v", r.Command, err)
	}
	return a
}

// open connects to Open vSwitch and reads the configuration. It always returns a node with a log: DEL can work
// without both.
func open(ctx context.Context, r Request, began time.Time) (*node, func()) {
	n := &node{started: began}
	var rundir string
	if rundir, n.problem = settings.RunDir(nil); n.problem == nil {
		n.sw, n.problem = r.connect(ctx, rundir)
	}
	c, err := settings.Load(ctx, nil, n.sw)
	n.config = c
	if n.problem == nil && err != nil {
		n.problem = types.NewError(types.ErrInvalidNetworkConfig, "bad configuration of "+program, oneLine(err))
	}
	closeLog := n.openLog()
	return n, func() {
		if n.sw != nil {
			n.sw.Close()
		}
		closeLog()
	}
}

// connect connects to Open vSwitch. ADD and CHECK monitor one port only: with hundreds of them in parallel, none must
// receive all other ports.
func (r Request) connect(ctx context.Context, rundir string) (*vswitch.Switch, error) {
	if r.Command == "ADD" || r.Command == "CHECK" {
		if pod, err := parsePod(r.Args.Args); err == nil {
			ports := []string{names.HostVeth(r.Args.ContainerID), names.UniqueHostVeth(r.Args.ContainerID)}
			return vswitch.ConnectFor(ctx, rundir, ports, names.PodPort(pod.namespace, pod.name))
		} // the error is reported by usable
	}
	return vswitch.Connect(ctx, rundir, nil)
}

// openLog opens the log file, or else standard error, which the runtime keeps.
func (n *node) openLog() func() {
	o := vlog.Options{Verbose: []string{"file:dbg", "console:off"}, LogFile: n.config.CNILogFile}
	l, err := vlog.New(program, o, os.Stderr)
	if err != nil || o.LogFile == "" {
		l, _ = vlog.New(program, vlog.Options{Verbose: []string{"console:warn"}}, os.Stderr) // cannot fail without a file
	}
	n.log = l.Module("cni")
	if err != nil {
		n.log.Warn(err)
	}
	return func() { _ = l.Close() }
}

// usable returns an error unless Open vSwitch is reachable and the configuration valid.
func (n *node) usable() error {
	if n.problem != nil && n.sw == nil {
		return types.NewError(types.ErrTryAgainLater, "Open vSwitch is not available", oneLine(n.problem))
	}
	return n.problem
}

// bridgeDatapath is the datapath type of br-int.
func (n *node) bridgeDatapath(ctx context.Context) (string, error) {
	datapath, err := n.sw.DatapathType(ctx, names.IntegrationBridge)
	if err != nil {
		return "", types.NewError(types.ErrTryAgainLater, "Open vSwitch is not ready", oneLine(err)+": is ovn-controller running, and was minion-init run?")
	}
	return datapath, nil
}

// cniError converts err to an error of the specification.
func cniError(err error) *types.Error {
	if e := (*types.Error)(nil); errors.As(err, &e) {
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return types.NewError(types.ErrTryAgainLater, oneLine(err), "")
	}
	return types.NewError(errFailed, oneLine(err), "")
}

// oneLine formats joined errors on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
