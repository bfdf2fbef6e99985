// Package ovnkube puts the roles of ovnkube together: master and node in one process, with one configuration, one log, one
// control socket and one set of informers. A role itself is a package below this one.
package ovnkube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/ovnkube/node"
	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
	"ovn-k8s/lib/watcher/garbage"
)

// Program is ovnkube's name in logs.
const Program = "ovnkube"

// Options are the parameters of a process.
type Options struct {
	// Flags are the settings of the command line, by option: see options.Groups.
	Flags map[string]string
	// Log returns the log of a module. nil is silent.
	Log func(module string) *logrus.Entry
	// Out gets the results of commands, Err their warnings.
	Out, Err io.Writer
	// Status is called with one line: see settings.States. It may be nil.
	Status func(text string)
}

// A Process has the roles of a command line.
type Process struct {
	Options
	states  *settings.States
	locator *locator
	roles   []role
}

// A role is a part of a process with its commands for ovs-appctl(8).
type role struct {
	settings.Role
	commands []daemon.Command
	// differences compares what the role keeps with what it should be, once: see Process.Check. nil: it keeps nothing.
	differences func(context.Context, settings.Session) ([]string, error)
}

// New returns the process of a command line. It has no role if the command line has none.
func New(o Options) *Process {
	share := kube.Share()
	p := &Process{Options: o, states: settings.NewStates(o.Status), locator: newLocator(o, share)}
	isMaster, accepted := o.Flags["init-master"] != "", newAcceptance()
	if isMaster {
		p.add(options.Master, masterRole(o, share, accepted.accept))
	}
	if name := o.Flags["init-node"]; name != "" {
		for _, r := range nodeRoles(o, share, name, p.runtime()) {
			if isMaster {
				r.Role = accepted.before(r.Role)
			}
			p.add(options.Node, r)
		}
	}
	if isMaster {
		p.add(options.Master, serverRole(o))
	}
	if len(p.roles) > 0 {
		p.add(p.roles[0].Reader, role{Role: p.locator.role()})
	}
	return p
}

// add adds a role that serves again when a setting of reader changes.
func (p *Process) add(reader config.Reader, r role) {
	r.Reader = reader
	p.roles = append(p.roles, r)
}

func (p *Process) runtime() settings.Runtime {
	return settings.Runtime{Flags: p.Flags, Resolve: p.locator.resolve, Reload: p.locator.reload, Log: p.Log, States: p.states}
}

// Commands are the commands of all roles: see daemon.Join.
func (p *Process) Commands() []daemon.Command {
	var all []daemon.Role
	for _, r := range p.roles {
		if len(r.commands) == 0 {
			continue
		}
		all = append(all, daemon.Role{Name: string(r.Reader), Commands: r.commands})
	}
	return daemon.Join(all...)
}

// Run runs the roles until ctx ends: see settings.Runtime. Before, it fails if this process may not change the host, or
// another one is its node.
func (p *Process) Run(ctx context.Context, ready func()) error {
	release, err := p.holdHost()
	if err != nil {
		return err
	}
	defer release()
	kept := garbage.Limit() // each host of the cluster has one of these processes
	defer runtime.KeepAlive(kept)
	var all []settings.Role
	for _, r := range p.roles {
		all = append(all, r.Role)
	}
	return p.runtime().Run(ctx, ready, all...)
}

// holdHost makes this process the only one with the role of a node on this host.
func (p *Process) holdHost() (release func(), err error) {
	if p.Flags["init-node"] == "" {
		return func() {}, nil
	}
	if err := link.NeedRoot(); err != nil {
		return nil, err
	}
	dir, err := p.runtime().RunDir()
	if err != nil {
		return nil, err
	}
	return node.Hold(dir)
}

// connectTimeout bounds the wait for an Open vSwitch that hangs, before the start.
const connectTimeout = 2 * time.Second

// Resolve returns the options of this host. While its Open vSwitch is down, the error has only what is wrong whatever
// external_ids are: Run has the others.
func (p *Process) Resolve(ctx context.Context) (options.Options, error) {
	if _, err := p.runtime().RunDir(); err != nil {
		return options.Options{}, err // of the configuration file
	}
	sw := p.trySwitch(ctx)
	if sw != nil {
		defer sw.Close()
	}
	var o options.Options
	resolve := func(s config.Sources) (config.Config, error) {
		var err error
		o, err = options.Resolve(s)
		return o.Config, err
	}
	r := p.runtime()
	r.Resolve = resolve
	_, err := r.Load(ctx, sw)
	if sw == nil {
		err = options.Certain(err)
	}
	return o, err
}

// trySwitch connects to the local Open vSwitch if it runs, else it returns nil.
func (p *Process) trySwitch(ctx context.Context) *vswitch.Switch {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	r := p.runtime()
	r.Log = nil // the roles report it
	sw, _ := r.ConnectSwitch(ctx)
	return sw
}

// ShowConfig prints every setting with its value and source. It needs no role.
func (p *Process) ShowConfig(ctx context.Context) error {
	sw := p.trySwitch(ctx)
	if sw != nil {
		defer sw.Close()
	} else {
		fmt.Fprintln(p.Err, "Open vSwitch does not answer: without its external_ids")
	}
	r := p.runtime()
	r.Resolve = options.Config // addresses that a process has found have no source
	err := r.ShowConfig(ctx, p.Out, sw)
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		err = errors.Join(slices.DeleteFunc(slices.Clone(j.Unwrap()), func(e error) bool { return e == options.ErrNoRole })...)
	}
	return err
}
