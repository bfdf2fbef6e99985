package settings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A Runtime is the part of a daemon that does not depend on its roles.
type Runtime struct {
	// Flags are the settings of the command line: see Flags.
	Flags map[string]string
	// Resolve computes the configuration for a program with settings of its own. nil: config.Resolve.
	Resolve func(config.Sources) (config.Config, error)
	// Reload has a value when Resolve may have another result for the same sources; nil: never.
	Reload <-chan struct{}
	// Log returns the log of a module. nil is silent.
	Log func(module string) *logrus.Entry
	// States are those of the roles. They may be nil.
	States *States
}

// Run runs roles in this process until ctx ends: see Follower. It waits for a local Open vSwitch that starts late, and
// calls ready when it begins to wait.
func (r Runtime) Run(ctx context.Context, ready func(), roles ...Role) error {
	sw, err := r.awaitSwitch(ctx, ready, roles)
	if err != nil {
		return err
	}
	if sw != nil {
		defer sw.Close()
	}
	f := Follower{Switch: sw, File: file(r.Flags), Load: r.loader(sw, roles), Roles: roles, Reload: r.Reload, States: r.States}
	return f.Run(ctx, ready)
}

// loader returns the function Load of a Follower. While the configuration file is missing or empty, its former settings
// count: an editor may be about to write it, and defaults would take a host's gateway and NodePorts away.
func (r Runtime) loader(sw *vswitch.Switch, roles []Role) func(context.Context) (config.Config, error) {
	var former map[string]string // of the file with the last valid settings; nil: none
	return func(context.Context) (config.Config, error) {
		s, err := sources(r.Flags, sw)
		if err != nil {
			return config.Config{}, err
		}
		gone := s.File == nil && former != nil
		if gone {
			s.File = former
		}
		cfg, err := r.resolve(s)
		for _, role := range roles {
			if err == nil && role.Check != nil {
				err = role.Check(cfg)
			}
		}
		if err == nil {
			former = s.File
		}
		if gone {
			cfg.Ignored = append(cfg.Ignored, s.FileName+" is missing or empty: its former settings are used; a restart would use the defaults")
		}
		return cfg, err
	}
}

// RunDir is the function RunDir.
func (r Runtime) RunDir() (string, error) { return RunDir(r.Flags) }

// Load resolves the configuration, as the function Load does. sw may be nil.
func (r Runtime) Load(_ context.Context, sw *vswitch.Switch) (config.Config, error) {
	s, err := sources(r.Flags, sw)
	if err != nil {
		return config.Config{}, err
	}
	return r.resolve(s)
}

func (r Runtime) resolve(s config.Sources) (config.Config, error) {
	if r.Resolve == nil {
		return config.Resolve(s)
	}
	return r.Resolve(s)
}

// awaitSwitch connects to the local Open vSwitch as soon as it runs. It returns nil if this host has none and no role
// needs one.
func (r Runtime) awaitSwitch(ctx context.Context, ready func(), roles []Role) (*vswitch.Switch, error) {
	needed := slices.ContainsFunc(roles, func(role Role) bool { return role.NeedsSwitch })
	if !needed && !HasSwitch() {
		return r.OptionalSwitch(ctx, roles[0].Log)
	}
	for last := ""; ; {
		sw, err := r.ConnectSwitch(ctx)
		if err == nil || ctx.Err() != nil || errors.As(err, new(invalid)) {
			return sw, err
		}
		if text := fmt.Sprintf("waiting: %v", err); text != last {
			last = text
			roles[0].Log.Warn(text)
			r.States.Set("", text)
			ready()
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Log returns the log of a module. It is silent if of is nil.
func Log(of func(module string) *logrus.Entry, module string) *logrus.Entry {
	if of != nil {
		return of(module)
	}
	return logrus.NewEntry(&logrus.Logger{})
}

// invalid is an error of the configuration.
type invalid struct{ error }

// ConnectSwitch connects to the local Open vSwitch.
func (r Runtime) ConnectSwitch(ctx context.Context) (*vswitch.Switch, error) {
	rundir, err := RunDir(r.Flags)
	if err != nil {
		return nil, invalid{err}
	}
	return vswitch.Connect(ctx, rundir, Log(r.Log, "ovsdb"))
}

// OptionalSwitch connects to the local Open vSwitch. It returns nil if that fails: then settings must come from
// elsewhere, as in a pod.
func (r Runtime) OptionalSwitch(ctx context.Context, log *logrus.Entry) (*vswitch.Switch, error) {
	sw, err := r.ConnectSwitch(ctx)
	if err != nil && !errors.As(err, new(invalid)) {
		log.Warnf("going on without external_ids of Open vSwitch: %v", err)
		return nil, nil
	}
	return sw, err
}

// ShowConfig prints every setting with its value and source. sw may be nil.
func (r Runtime) ShowConfig(ctx context.Context, out io.Writer, sw *vswitch.Switch) error {
	cfg, err := r.Load(ctx, sw)
	fmt.Fprint(out, cfg.Show())
	return err
}
