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

// A Follower runs a daemon with its present settings, and again with new ones when external_ids of the local Open
// vSwitch change.
type Follower struct {
	// Switch reports changes; nil: none.
	Switch *vswitch.Switch
	// Load returns the present settings, or an error if the daemon cannot serve with them.
	Load func(context.Context) (config.Config, error)
	// Serve serves with one configuration until ctx ends, or returns ErrChanged to be called again. token returns
	// the present token of the API server. Serve calls ready once it serves, possibly several times.
	Serve func(ctx context.Context, cfg config.Config, token func() string, ready func()) error
	// Fatal reports the errors of Serve that end the daemon at any time; nil: none.
	Fatal func(error) bool
	Log   *logrus.Entry
	// Status gets one line about the daemon's state or the reason for waiting; nil: not used.
	Status func(text string)
}

// Wrong marks a permanent error: waiting does not help. As an error of Serve it ends a daemon that has not served
// yet. After other errors, Serve is called again until it succeeds.
func Wrong(err error) error { return &wrong{err} }

// IsWrong reports whether err is marked by Wrong.
func IsWrong(err error) bool { return errors.As(err, new(*wrong)) }

type wrong struct{ error }

func (w *wrong) Unwrap() error { return w.error }

// ErrChanged is the reason to call Serve again.
var ErrChanged = errors.New("the configuration changed")

// caInterval bounds the time until a replaced CA certificate is noticed.
const caInterval = time.Minute

// retryInterval is the time between attempts.
const retryInterval = time.Second

// Run serves until ctx ends. It returns invalid settings at the start, and permanent errors (Wrong). For other
// errors Run reports the reason once, calls ready, and tries again. Once the daemon has served, it keeps the former
// settings while new ones are invalid.
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
	var said atomic.Value // reason of the last failure, as logged
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
			ready() // it has started, and reports the reason for waiting
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

// loader returns a function that loads the settings and reports whether they are valid. It logs each problem once.
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

// serve runs Serve with one configuration until a change.
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
	<-following // so that the next call hears of all changes from now on
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// authorities is the text of the API server's CA certificates; a client reads them once. It is empty if they are
// not in a file, or are invalid.
func authorities(cfg config.Config) string {
	text, err := os.ReadFile(cfg.APICAFile)
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(text) {
		return "" // clients report it
	}
	return string(text)
}
