package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// informersOfPods returns Informers of pods at a server, and a silent log.
func informersOfPods(t *testing.T, url string) (*Informers, Kind, *logrus.Entry) {
	t.Helper()
	i, pods := NewInformers(&rest.Config{Host: url}), KindOf(&corev1.Pod{})
	if err := i.add([]Kind{pods}); err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	return i, pods, logrus.NewEntry(log)
}

// Objects are listed from the API server's cache, unless a role needs the latest ones.
func TestListsComeFromTheCache(t *testing.T) {
	asked := make(chan url.Values, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		asked <- r.URL.Query()
		fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`)
	}))
	defer s.Close()
	i, pods, log := informersOfPods(t, s.URL)
	for _, tt := range []struct {
		node   string
		latest bool
		want   url.Values
	}{
		{"", true, url.Values{"limit": {"500"}}},
		{"", false, url.Values{"limit": {"500"}, "resourceVersion": {"0"}}},
		{"n1", false, url.Values{"fieldSelector": {"spec.nodeName=n1"}, "limit": {"500"}, "resourceVersion": {"0"}}},
	} {
		leave := i.join(pods, &subscriber{Subscription: Subscription{Kind: pods, Node: tt.node, Latest: tt.latest, Send: func(Event) {}}}, log)
		if diff := cmp.Diff(tt.want, <-asked); diff != "" {
			t.Errorf("node %q, latest %v (-want +got)\n%s", tt.node, tt.latest, diff)
		}
		leave()
	}
}

// Roles that start together cause one LIST of a kind, and a role that comes later another one, which all of them get.
func TestOneListForRolesThatStartTogether(t *testing.T) {
	var lists atomic.Int32
	held := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-held // until two roles have subscribed
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		lists.Add(1)
		fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"p"},"spec":{"nodeName":"n1"}}]}`)
	}))
	defer s.Close()
	i, pods, log := informersOfPods(t, s.URL)
	join := func(node string) (chan Event, func()) {
		events := make(chan Event, 10)
		return events, i.join(pods, &subscriber{Subscription: Subscription{Kind: pods, Node: node, Send: func(e Event) { events <- e }}}, log)
	}
	listed := func(events chan Event, count int) {
		t.Helper()
		if e := <-events; !e.Replace || len(slices.Collect(e.Objects)) != count {
			t.Errorf("got %+v", e)
		}
	}
	a, leaveA := join("")
	b, leaveB := join("")
	close(held)
	listed(a, 1)
	listed(b, 1)
	if n := lists.Load(); n != 1 {
		t.Errorf("%d LISTs", n)
	}
	c, leaveC := join("n2")
	listed(a, 1)
	listed(b, 1)
	listed(c, 0)
	if n := lists.Load(); n != 2 {
		t.Errorf("%d LISTs", n)
	}
	leaveA()
	leaveB()
	leaveC()
	if len(i.running) != 0 {
		t.Error("an informer without subscribers runs")
	}
}

// A role for which a kind is optional gets an empty list if it is missing or forbidden, whenever it comes. The API server is
// not lost then; a right may be forgotten, but an older server is no defect.
func TestAForbiddenKindIsEmptyForThoseWhoMayDoWithout(t *testing.T) {
	for reason, want := range map[metav1.StatusReason]struct {
		code  int
		level string
	}{
		metav1.StatusReasonForbidden: {http.StatusForbidden, "level=warning"},
		metav1.StatusReasonNotFound:  {http.StatusNotFound, "level=info"},
	} {
		out := emptyForTwo(t, metav1.Status{Status: metav1.StatusFailure, Reason: reason, Code: int32(want.code)})
		if !strings.Contains(out, want.level) || strings.Contains(out, "lost") {
			t.Errorf("%s: got %s", reason, out)
		}
	}
}

// emptyForTwo returns the log of an informer with two such roles, of a server with one answer.
func emptyForTwo(t *testing.T, answer metav1.Status) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(answer.Code))
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer s.Close()
	i, pods, log := informersOfPods(t, s.URL)
	var out bytes.Buffer
	log.Logger.SetOutput(&out)
	var leave []func()
	for range 2 { // the second one joins while the first one waits for the next try, a minute later
		events := make(chan Event, 10)
		leave = append(leave, i.join(pods, &subscriber{Subscription: Subscription{Kind: pods, Optional: true, Send: func(e Event) { events <- e }}}, log))
		if e := <-events; !e.Replace || len(slices.Collect(e.Objects)) != 0 {
			t.Errorf("got %+v", e)
		}
	}
	for _, f := range leave {
		f()
	}
	return out.String()
}
