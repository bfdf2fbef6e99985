package settings_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/settings"
)

// A role without its rights has started, and does not serve. Its reason ends with the call of Serve.
func TestARoleThatWaitsDoesNotServe(t *testing.T) {
	var shown []string
	log := logrus.New()
	log.SetOutput(io.Discard)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := []func(s settings.Session, ready func()) error{
		func(s settings.Session, ready func()) error {
			s.Wait("refused")
			ready()
			s.Wait("refused")
			s.Wait("refused again")
			s.Wait("")
			s.Wait("refused")
			return errors.New("down")
		},
		func(_ settings.Session, ready func()) error {
			ready()
			cancel()
			return nil
		},
	}
	f := settings.Follower{
		Load:   func(context.Context) (config.Config, error) { return config.Config{}, nil },
		States: settings.NewStates(func(line string) { shown = append(shown, line) }),
		Roles: []settings.Role{{Log: logrus.NewEntry(log), Serve: func(_ context.Context, s settings.Session, ready func()) error {
			call := calls[0]
			calls = calls[1:]
			return call(s, ready)
		}}},
	}
	if err := f.Run(ctx, func() {}); err != nil {
		t.Fatal(err)
	}
	want := []string{"waiting: refused", "waiting: refused again", "serving", "waiting: refused", "trying again: down", "serving"}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
