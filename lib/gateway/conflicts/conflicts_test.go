package conflicts

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	"k8s.io/apimachinery/pkg/runtime"

	"ovn-k8s/lib/desired/service"
)

// Services that come and go, under one name or always another one, have a few reports, and then one a minute. Other
// namespaces have theirs, and conflicts that stay are all reported in the end.
func TestServicesInTurnsHaveFewReports(t *testing.T) {
	logger, hook := test.NewNullLogger()
	logger.SetOutput(io.Discard)
	r := New(logrus.NewEntry(logger))
	events, now := 0, time.Unix(0, 0)
	r.Warn = func(runtime.Object, string, string) { events++ }
	r.now = func() time.Time { return now }
	of := func(namespace, name string) conflict {
		return conflict{service.Key{Namespace: namespace, Name: name}, "uid", "Reason", namespace + "/" + name}
	}
	expect := func(when string, want int) {
		t.Helper()
		if got := len(hook.AllEntries()); got != want || events != want {
			t.Errorf("%s: %d lines and %d Events, want %d", when, got, events, want)
		}
		hook.Reset()
		events = 0
	}
	for i := range 100 {
		r.tell("servers", []conflict{of("tenant", fmt.Sprint("new", i))})
		r.tell("servers", []conflict{of("tenant", "same")})
		r.tell("servers", nil)
	}
	expect("in turns", reportsAtOnce)
	r.tell("NodePorts", []conflict{of("other", "web")})
	expect("another namespace", 1)
	now = now.Add(reportsEvery)
	for range 100 {
		r.tell("servers", []conflict{of("tenant", "same")})
		r.tell("servers", nil)
	}
	expect("after a minute", 1)

	var all []conflict
	for i := range 2 * reportsAtOnce {
		all = append(all, of("many", fmt.Sprint(i)))
	}
	for range 2 { // the second call tells nothing new
		r.tell("servers", all)
	}
	expect("many at once", reportsAtOnce)
	for range reportsAtOnce {
		now = now.Add(reportsEvery)
		r.tell("servers", all)
		r.tell("servers", all)
	}
	expect("the others", reportsAtOnce)
	now = now.Add(time.Hour)
	r.tell("servers", all)
	expect("later", 0)
	if len(r.free) != 0 {
		t.Errorf("%d namespaces are kept", len(r.free))
	}
}
