package otherlease

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/ovsdb"
)

var (
	own    = types.NamespacedName{Namespace: "kube-system", Name: "ovn-k8s-watcher"}
	theirs = ovsdb.Leader{Identity: "them/1-2/3", Term: 4, Lease: "other/ovn-k8s-watcher"}
)

func TestWait(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, own.Name, errors.New("no right"))
	const renewing = time.Minute // then the holder ends
	for _, tt := range []struct {
		name   string
		leader ovsdb.Leader
		holder func(age time.Duration) (kube.Holding, error)
		want   time.Duration // that it waits, to a pause
		told   bool
	}{
		{name: "no leader yet"},
		{name: "a token of a former release", leader: ovsdb.Leader{Identity: "them/1-2/3", Term: 4}},
		{name: "the leader had this Lease", leader: ovsdb.Leader{Identity: "them/1-2/3", Term: 4, Lease: own.String()}},
		{name: "a text that is no Lease", leader: ovsdb.Leader{Identity: "them/1-2/3", Term: 4, Lease: "other/ovn/watcher"}},
		{"the Lease is free", theirs, func(time.Duration) (kube.Holding, error) { return kube.Holding{}, nil }, 0, false},
		{"the leader has ended on this host", theirs, func(time.Duration) (kube.Holding, error) { return kube.Holding{Identity: "dead", Renewed: "1"}, nil }, 0, false},
		{"this process had the other Lease", theirs, func(time.Duration) (kube.Holding, error) { return kube.Holding{Identity: "us", Renewed: "1"}, nil }, 0, false},
		{"the leader has ended", theirs, func(time.Duration) (kube.Holding, error) {
			return kube.Holding{Identity: theirs.Identity, Renewed: "1"}, nil
		}, kube.LeaseDuration, false},
		{"the leader lives for a minute", theirs, func(age time.Duration) (kube.Holding, error) {
			return kube.Holding{Identity: theirs.Identity, Renewed: min(age, renewing).String()}, nil
		}, renewing + kube.LeaseDuration, true},
		{"the leader has a Lease of a minute, and has ended", theirs, func(time.Duration) (kube.Holding, error) {
			return kube.Holding{Identity: theirs.Identity, Renewed: "1", Duration: time.Minute}, nil
		}, time.Minute, false},
		{"the leader renews its Lease of a minute each 20 s", theirs, func(age time.Duration) (kube.Holding, error) {
			return kube.Holding{Identity: theirs.Identity, Renewed: min(age.Truncate(20*time.Second), renewing).String(), Duration: time.Minute}, nil
		}, renewing + time.Minute, true},
		{"the right is missing", theirs, func(time.Duration) (kube.Holding, error) { return kube.Holding{}, forbidden }, kube.LeaseDuration, true},
		{"no answer for a minute", theirs, func(age time.Duration) (kube.Holding, error) {
			if age < renewing {
				return kube.Holding{}, errors.New("no answer")
			}
			return kube.Holding{Identity: theirs.Identity, Renewed: "1"}, nil
		}, renewing + kube.LeaseDuration, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				log, text := logged()
				w := Wait{Log: log, Own: own, Identity: "us", Dead: func(identity string) bool { return identity == "dead" },
					Leader: func() (ovsdb.Leader, error) { return tt.leader, nil },
					Holder: func(_ context.Context, lease types.NamespacedName) (kube.Holding, error) {
						if lease.String() != tt.leader.Lease {
							t.Errorf("it looks at the Lease %s", lease)
						}
						return tt.holder(time.Since(start))
					}}
				if err := w.Run(t.Context()); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took < tt.want || took > tt.want+2*pause {
					t.Errorf("waited for %s, want %s", took, tt.want)
				}
				want := 0
				if tt.told {
					want = 1
				}
				if got := strings.Count(text.String(), "external_ids:ovn-k8s-config-namespace=other"); got != want {
					t.Errorf("the way out was told %d times: %s", got, text)
				}
			})
		})
	}
}

// A token that is removed by hand, or with the database, is written again by its leader.
func TestARemovedToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start, leader := time.Now(), theirs
		log, _ := logged()
		w := Wait{Log: log, Own: own, Dead: func(string) bool { return false },
			Leader: func() (ovsdb.Leader, error) {
				if time.Since(start) > time.Minute {
					leader = ovsdb.Leader{}
				}
				return leader, nil
			},
			Holder: func(context.Context, types.NamespacedName) (kube.Holding, error) {
				return kube.Holding{Identity: theirs.Identity, Renewed: time.Now().String()}, nil
			}}
		if err := w.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ended after %s with %v", time.Since(start), err)
		}
	})
}

func logged() (*logrus.Entry, *bytes.Buffer) {
	var text bytes.Buffer
	l := logrus.New()
	l.SetOutput(&text)
	return logrus.NewEntry(l), &text
}
