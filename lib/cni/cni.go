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
	"cmp"
	"context"
	"errors"
	"fmt"
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

	"ovn-k8s/lib/cni/protocol"
	"ovn-k8s/lib/config"
	"ovn-k8s/lib/defect"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb"
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

// A Request is a command of a container runtime: section 4 of the specification.
type Request struct {
	Command string // ADD, DEL, CHECK, GC or STATUS
	Args    *skel.CmdArgs
}

// An Answer is the result of a Request.
type Answer struct {
	Version string           // of the specification, as the runtime wants it
	Result  *types100.Result // of ADD, in the newest version; nil: none
	Err     *types.Error     // nil: success
}

// A Host executes requests. The zero Host is that of the stand-alone plugin: its requests share nothing. In a daemon they
// share what is given.
type Host struct {
	// Settings are those of this host, asked for each request; nil: without a command line, see settings.Source.
	Settings Settings
	// Pods are this host's pods; nil: each ADD asks the API server.
	Pods Pods
	// Switch is the local Open vSwitch. Each request connects to it if it is nil or not connected at present.
	Switch *vswitch.Switch
	// Log is the log; nil: the plugin's log file.
	Log *logrus.Entry
	// Hints are those for this host; none: for one with the stand-alone plugin.
	Hints Hints
}

// Hints are the ends of errors about the work of other programs: where to look.
type Hints struct {
	Annotation string // of a pod: it is missing
	Bridge     string // br-int: it is missing
}

func aloneHints() Hints {
	return Hints{
		Annotation: "is ovn-k8s-watcher running? If it is, another event of the pod says why",
		Bridge:     "is ovn-controller running, and was minion-init run?",
	}
}

// Settings are the settings of a host, such as settings.Source.
type Settings interface {
	RunDir() (string, error)
	Load(context.Context, *vswitch.Switch) (config.Config, error)
}

// Main serves the request of this process's environment and standard input, and returns the exit status: see
// protocol.Main. release is the program's version, for people who run it by hand.
func Main(release string) int {
	// The process ends before memory matters; measured, this saves 3 of 20 ms of CPU.
	debug.SetGCPercent(400)
	// The runtime may be gone before the result is written. A broken pipe then is an error, and ADD is undone.
	signal.Ignore(syscall.SIGPIPE)
	// A runtime that gives up sends SIGTERM first; then ADD is undone. NotifyContext's stop is not called: the
	// process ends anyway, and stop waits three times for another thread, each time for a turn on a busy machine.
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	return protocol.Main(protocol.About(program, release), func(command string, args *skel.CmdArgs) (string, *types.Error) {
		answer := Host{}.Serve(ctx, Request{command, args}, func(a Answer) error { return protocol.Print(a.Result, a.Version) })
		return answer.Version, answer.Err
	})
}

// A node is the host of one command.
type node struct {
	started time.Time
	log     *logrus.Entry
	config  config.Config
	pods    Pods  // see Host
	hints   Hints // see Host
	// sw is the local Open vSwitch, nil if unreachable. problem is the error of connecting to it or of reading the
	// configuration.
	sw      *vswitch.Switch
	problem error
	// fresh: the copy of a shared sw was brought up to date for this command.
	fresh bool
}

// A command runs after the network configuration was parsed.
type command func(*node, context.Context, *skel.CmdArgs, *types.PluginConf) (*types100.Result, error)

// commands are those of the specification.
func commands() map[string]command {
	return map[string]command{
		"ADD": (*node).add, "DEL": plain((*node).del), "CHECK": plain((*node).check), "GC": plain((*node).gc), "STATUS": plain((*node).status),
	}
}

// plain is a command without a result.
func plain(run func(*node, context.Context, *skel.CmdArgs, *types.PluginConf) error) command {
	return func(n *node, ctx context.Context, args *skel.CmdArgs, conf *types.PluginConf) (*types100.Result, error) {
		return nil, run(n, ctx, args, conf)
	}
}

// Serve executes a request, and calls deliver with the result of ADD. If that fails, it undoes ADD. Its only output is the
// log.
func (h Host) Serve(ctx context.Context, r Request, deliver func(Answer) error) Answer {
	a := Answer{Version: types100.ImplementedSpecVersion}
	began := time.Now()
	run, known := commands()[r.Command]
	if !known {
		a.Err = types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("unknown command %q: want ADD, DEL, CHECK, GC or STATUS", r.Command), "")
		return a
	}
	conf, err := parseConf(r.Args.StdinData)
	if err != nil {
		a.Err = cniError(ctx, err)
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
	n, closeNode := h.open(ctx, r, began)
	defer func() { closeNode() }()
	a.Result, err = run(n, ctx, r.Args, conf)
	for r.Command == "STATUS" && mayPass(ctx, err, began) {
		closeNode()
		n, closeNode = h.open(ctx, r, began)
		a.Result, err = run(n, ctx, r.Args, conf)
	}
	if err == nil && a.Result != nil {
		if err = deliver(a); err != nil {
			pod, _ := parsePod(r.Args.Args) // ADD has parsed it
			n.undo(ctx, pod, newAttachment(r.Args, conf))
			a.Result, err = nil, types.NewError(types.ErrIOFailure, "writing the result", err.Error())
		}
	}
	if err != nil {
		n.reportDefect(err)
		a.Err = cniError(ctx, err)
		n.log.WithFields(logrus.Fields{"code": a.Err.Code, "container": r.Args.ContainerID}).Warnf("%s: %v", r.Command, err)
	}
	return a
}

// reportDefect logs the stack of a panic. Errors for the runtime have none.
func (n *node) reportDefect(err error) {
	if d := (*defect.Error)(nil); errors.As(err, &d) {
		n.log.Errorf("%v\n%s", d, d.Stack)
	}
}

// open connects to Open vSwitch and reads the configuration. It always returns a node with a log: DEL can work
// without both.
func (h Host) open(ctx context.Context, r Request, began time.Time) (*node, func()) {
	if h.Settings == nil {
		h.Settings = settings.Source(nil)
	}
	n := &node{started: began, pods: h.Pods, hints: cmp.Or(h.Hints, aloneHints()), log: h.Log}
	closeSwitch := n.useSwitch(ctx, h, r)
	c, err := h.Settings.Load(ctx, n.sw)
	n.config = c
	if n.problem == nil && err != nil && !c.ValidFor(config.Plugin) { // the daemons report the others
		n.problem = types.NewError(types.ErrInvalidNetworkConfig, "bad configuration of "+program, oneLine(err))
	}
	if h.Log != nil {
		return n, closeSwitch
	}
	closeLog := n.openLog()
	return n, func() {
		closeSwitch()
		closeLog()
	}
}

// refreshTimeout bounds the time to learn whether a shared connection to Open vSwitch is alive.
const refreshTimeout = 10 * time.Second

// useSwitch uses the shared connection to Open vSwitch or, without one, connects.
func (n *node) useSwitch(ctx context.Context, h Host, r Request) (closeSwitch func()) {
	if h.Switch != nil {
		bounded, cancel := context.WithTimeout(ctx, refreshTimeout)
		defer cancel()
		if err := h.Switch.Refresh(bounded); !errors.Is(err, ovsdb.ErrNotConnected) {
			n.sw, n.fresh = h.Switch, err == nil // perhaps of a database that does not answer: the command reports it
			return func() {}
		}
	}
	rundir, err := h.Settings.RunDir()
	if err == nil {
		n.sw, err = r.connect(ctx, rundir)
	}
	n.problem = err
	return func() {
		if n.sw != nil {
			n.sw.Close()
		}
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
		return "", types.NewError(types.ErrTryAgainLater, "Open vSwitch is not ready", oneLine(err)+": "+n.hints.Bridge)
	}
	return datapath, nil
}

// cniError converts err to an error of the specification.
func cniError(ctx context.Context, err error) *types.Error {
	if e := (*types.Error)(nil); errors.As(err, &e) {
		return e
	}
	if interrupted(ctx, err) {
		return types.NewError(types.ErrTryAgainLater, oneLine(err), "")
	}
	return types.NewError(protocol.Failed, oneLine(err), "")
}

// interrupted reports whether err is the end of a request, such as by a signal, by a timeout, or by the runtime's DEL. The
// connection to Open vSwitch returns the cause of ctx instead of its error.
func interrupted(ctx context.Context, err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
}

// oneLine formats joined errors on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
