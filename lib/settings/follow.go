package settings

import (
	"context"
	"crypto/x509"
	"errors"
	"os"
	"sync"
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
	// Serve serves with one configuration until ctx ends, and returns ErrChanged to be
	// called anew. token is the API server's as it is now. It calls ready once it
	// serves, which may be more than once.
	Serve func(ctx context.Context, cfg config.Config, token func() string, ready func()) error
	// Fatal tells the errors of Serve that end the daemon whenever they come; nil:
	// there are none.
	Fatal func(error) bool
	Log   *logrus.Entry
	// Status is told in one line what the daemon does or waits for; nil: nobody is.
	Status func(text string)
}

// Wrong marks an error that waiting does not mend. As an error of Serve it ends a daemon that
// has not served yet. For other errors, Serve is called again until it succeeds.
func Wrong(err error) error { return &wrong{err} }

// IsWrong reports whether err is marked by Wrong.
func IsWrong(err error) bool { return errors.As(err, new(*wrong)) }

type wrong struct{ error }

func (w *wrong) Unwrap() error { return w.error }

// ErrChanged is why Serve begins anew.
var ErrChanged = errors.New("the configuration changed")

// caInterval bounds for how long a CA certificate that was replaced is not noticed.
const caInterval = time.Minute

// retryInterval is how long a daemon waits before it tries again.
const retryInterval = time.Second

// Run serves until ctx ends. It returns settings that make no sense at the start, and
// errors that are Wrong. Everything else is late: Run says once what it waits for,
// calls ready, and tries again. Once the daemon has served, it keeps the former
// settings while new ones make no sense.
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
	var said atomic.Value // why the last try failed, as logged
	said.Store("")
	for {
		for _, what := range cfg.Ignored {
			f.Log.Warn(what)
		}
		err := f.serve(ctx, cfg, changed, load, func() {
			served.Store(true)
			ready()
			if said.Swap("") != "" {
				f.Log.Info("recovered: serving")
			}
			f.status("serving")
		})
		switch {
		case errors.Is(err, ErrChanged):
			f.Log.Infof("%v: starting anew", err)
		case err == nil || ctx.Err() != nil || f.ends(err, served.Load()):
			return err
		default:
			if said.Swap(err.Error()) != err.Error() {
				what := "waiting: "
				if served.Load() {
					what = "trying again: "
				}
				f.Log.Warn(what + err.Error())
				f.status(what + err.Error())
			}
			ready() // it has started, and tells what it waits for
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

// ends reports whether an error of Serve ends the daemon.
func (f Follower) ends(err error, served bool) bool {
	return !served && IsWrong(err) || f.Fatal != nil && f.Fatal(err)
}

func (f Follower) status(text string) {
	if f.Status != nil {
		f.Status(text)
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
	renewed := make(chan struct{}, 1)
	var tokens sync.WaitGroup
	tokens.Go(func() {
		FollowToken(ctx, func() (Token, bool) {
			now := cfg
			now.APIToken = config.Secret(token.Load().(string))
			return ReadToken(now)
		}, renewed, func(text string) { f.Log.Warn(text) })
	})
	following, ca := make(chan struct{}), authorities(cfg)
	go func() {
		defer close(following)
		look := time.NewTicker(caInterval)
		defer look.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
				if now := authorities(cfg); now != "" && now != ca {
					f.Log.Infof("CA certificate of the API server: %s was replaced", cfg.APICAFile)
					cancel(ErrChanged)
				}
				continue
			case <-changed:
			}
			if now, ok := load(ctx); ok {
				token.Store(now.APIToken.Reveal())
				select {
				case renewed <- struct{}{}:
				default:
				}
				if !cfg.Same(now) {
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
	tokens.Wait()
	<-following // so that the next one hears of all changes from now on
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// authorities is the text of the API server's CA certificates, which a client reads once. It is empty if they are not in
// a file, or cannot be used.
func authorities(cfg config.Config) string {
	text, err := os.ReadFile(cfg.APICAFile)
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(text) {
		return "" // clients report it
	}
	return string(text)
}
