package kube

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"ovn-k8s/test/limit"
)

// A process on a host that was suspended has lost the Lease when it goes on: the monotonic clock, and with it all timers,
// stood still.
func TestASuspendedHostHasLostTheLease(t *testing.T) {
	now := sinceBoot()
	c := &Cluster{clock: func() time.Duration { return now }}
	l := &lock{times: defaultTimes(), clock: c.clock, held: &c.held, failed: c.noteElection, unable: func() error { return nil }, timer: time.NewTimer(time.Hour)}
	renew := func() {
		t.Helper()
		if err := l.renew(func() error { return nil }); err != nil || !c.Leads() {
			t.Fatalf("after a renewal it leads: %v (%v)", c.Leads(), err)
		}
	}
	renew()
	now += l.times.leadTime() - time.Second
	if !c.Leads() {
		t.Error("the Lease ends too early")
	}
	renew()
	now += 10 * time.Minute
	if c.Leads() {
		t.Error("it leads after ten minutes of suspension")
	}
	renew()
}

// The clock of the Lease goes on.
func TestSinceBoot(t *testing.T) {
	before := sinceBoot()
	<-time.After(time.Millisecond)
	if now := sinceBoot(); before <= 0 || now <= before {
		t.Errorf("%v since boot, and %v a millisecond later", before, now)
	}
}

// With long times a process leads though the API server takes more than the usual 3 s for each answer, and reads from it then.
func TestASlowAPIServer(t *testing.T) {
	t.Parallel()
	var fast atomic.Bool // after the test
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !fast.Load() {
			select {
			case <-time.After(3500 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
		w.Header().Set("Content-Type", "application/json")
		var answer any = coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "lease"}}
		if r.URL.Path == "/api/v1/namespaces" {
			answer = corev1.NamespaceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}, Items: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{UID: "u"}}}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	c, err := NewCluster(&rest.Config{Host: server.URL}, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit.Of(30*time.Second))
	defer cancel()
	log := logrus.New()
	log.SetOutput(t.Output())
	led := false
	who := Candidate{
		Identity: "me", Times: LeaseTimes{60 * time.Second, 30 * time.Second, 20 * time.Second},
		Dead: func(string) bool { return false }, Elected: func(string) {}, Unable: func() error { return nil },
	}
	err = c.Lead(ctx, logrus.NewEntry(log), types.NamespacedName{Namespace: "a", Name: "lease"}, who, func(ctx context.Context) error {
		defer fast.Store(true)
		led = true
		_, err := c.UID(ctx)
		return err
	})
	if err != nil || !led {
		t.Errorf("led: %v, %v; the last request for the Lease: %v", led, err, c.ElectionError())
	}
}
