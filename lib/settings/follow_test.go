package settings_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/settings"
)

// Section 5: what keeps a daemon from serving is logged once, its end too, and once more when it comes back.
func TestFollowerTellsOfRecovery(t *testing.T) {
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	log.SetFormatter(&logrus.TextFormatter{DisableTimestamp: true})
	down := errors.New("down")
	steps := []error{down, down, nil, down, nil} // of each call of Serve; nil: it serves, and fails next
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := settings.Follower{
		Load: func(context.Context) (config.Config, error) { return config.Config{}, nil },
		Serve: func(_ context.Context, _ config.Config, _ func() string, ready func()) error {
			step := steps[0]
			if steps = steps[1:]; step == nil {
				ready()
			}
			if len(steps) == 0 {
				cancel()
				return nil
			}
			return down
		},
		Log: logrus.NewEntry(log),
	}
	if err := f.Run(ctx, func() {}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`level=warning msg="waiting: down"`, `level=info msg="recovered: serving"`,
		`level=warning msg="trying again: down"`, `level=info msg="recovered: serving"`,
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
