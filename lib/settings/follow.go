package settings

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A Follower has a daemon serve with the settings that there are, and with others
// when external_ids of the local Open vSwitch change.
type Follower struct {
	// Switch tells of changes; nil: there are none.
	Switch *vswitch.Switch
	// Load returns the settings that there are now, if the daemon can serve with them.
	Load func(context.Context) (config.Config, error)
	// Same reports whether two configurations mean the same to the daemon. The API
	// server's token may differ.
	Same func(a, b config.Config) bool
	// Serve serves with one configuration until ctx ends, and returns ErrChanged to be
	// called anew. token is the API server's as it is now. It calls ready once it
	// serves, which may be more than once.
	Serve func(ctx context.Context, cfg config.Config, token func() string, ready func()) error
	// Fatal tells the errors of Serve that end the daemon whenever they come; nil:
	// there are none.
	Fatal func(error) bool
	Log   *logrus.Entry
}

// ErrChanged is why Serve begins anew.
var ErrChanged = errors.New("the configuration changed")

// retryInterval is how long a daemon that has served waits before it tries again.
const retryInterval = time.Second

// Run serves until ctx ends, or returns what is wrong at the start. Once the daemon
// was ready, hardly anything ends it: as long as settings make no sense it goes on
// with the former ones, and with those that do it tries until they work or are
// others.
func (f Follower) Run(ctx context.Context, ready func()) error {
	changed := make(chan struct{}, 1)
	if f.Switch != nil {
		f.Switch.OnExternalIDs(func(map[string]string) {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}
	cfg, err := f.Load(ctx)
	if err != nil {
		return err
	}
	load := f.loader()
	var served atomic.Bool
	for said := ""; ; {
		for _, what := range cfg.Ignored {
			f.Log.Warn(what)
		}
		err := f.serve(ctx, cfg, changed, load, func() { served.Store(true); ready() })
		switch {
		case errors.Is(err, ErrChanged):
			f.Log.Infof("%v: starting anew", err)
			said = ""
		case err == nil || ctx.Err() != nil || !served.Load() || f.Fatal != nil && f.Fatal(err):
			return err
		default:
			if err.Error() != said {
				said = err.Error()
				f.Log.Warnf("trying again: %v", err)
			}
			select {
			case <-changed:
			case <-time.After(retryInterval):
			case <-ctx.Done():
				return nil
			}
		}
		if now, ok := load(ctx); ok {
			cfg = now
		}
	}
}

// loader returns what loads the settings, and reports whether they make sense. What
// is wrong with them is said once.
func (f Follower) loader() func(context.Context) (config.Config, bool) {
	said := ""
	return func(ctx context.Context) (config.Config, bool) {
		cfg, err := f.Load(ctx)
		switch {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			f.Log.Warnf("keeping the former configuration: %v", err)
		}
		return cfg, err == nil
	}
}

// serve runs Serve with one configuration until that changes.
func (f Follower) serve(ctx context.Context, cfg config.Config, changed <-chan struct{}, load func(context.Context) (config.Config, bool), ready func()) error {
	var token atomic.Value
	token.Store(cfg.APIToken.Reveal())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	following := make(chan struct{})
	go func() {
		defer close(following)
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
			if now, ok := load(ctx); ok {
				token.Store(now.APIToken.Reveal())
				if !f.Same(cfg, now) {
					cancel(ErrChanged)
				}
			}
		}
	}()
	err := f.Serve(ctx, cfg, func() string { return token.Load().(string) }, ready)
	if context.Cause(ctx) == ErrChanged {
		err = ErrChanged
	}
	cancel(nil)
	<-following // so that the next one hears of all changes from now on
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
