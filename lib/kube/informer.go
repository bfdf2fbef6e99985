package kube

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"ovn-k8s/lib/reconcile"
)

// optionalRetry is the delay before asking again for a missing or forbidden resource.
const optionalRetry = time.Minute

// An informer follows the objects of one kind for its subscribers. It is the store of its reflector.
type informer struct {
	kind   Kind
	client rest.Interface
	log    *logrus.Entry
	stop   context.CancelFunc
	done   chan struct{} // closed at the end of run

	mu          sync.Mutex // guards the fields below and calls of Send
	subscribers []*subscriber
	node        string             // the node of the objects listed; "" is all
	listed      bool               // a list was sent in this round, or there is none to send
	lists       int                // received
	restart     context.CancelFunc // ends the round
}

// A subscriber is a subscription and its state.
type subscriber struct {
	Subscription
	known bool // a Replace was sent
}

func newInformer(k Kind, c rest.Interface, log *logrus.Entry) *informer {
	return &informer{kind: k, client: c, log: log.WithField("resource", k.Name), done: make(chan struct{}), restart: func() {}}
}

// add adds a subscriber. If objects were listed already, or are listed of one node only, they are listed again.
func (f *informer) add(s *subscriber) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subscribers = append(f.subscribers, s)
	if f.listed || f.commonNode() != f.node {
		f.restart()
	}
}

// remove removes a subscriber and reports whether it was the last one.
func (f *informer) remove(s *subscriber) (last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subscribers = slices.DeleteFunc(f.subscribers, func(o *subscriber) bool { return o == s })
	return len(f.subscribers) == 0
}

// commonNode is the node of which all subscribers want objects, "" if they want more. f.mu is held.
func (f *informer) commonNode() string {
	for _, s := range f.subscribers {
		if s.Node != f.subscribers[0].Node {
			return ""
		}
	}
	if len(f.subscribers) == 0 {
		return f.node
	}
	return f.subscribers[0].Node
}

// begin begins a round: one LIST and WATCH until restart is called, and their repetition.
func (f *informer) begin(restart context.CancelFunc) *cache.Reflector {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.node, f.listed, f.restart = f.commonNode(), false, restart
	latest := slices.ContainsFunc(f.subscribers, func(s *subscriber) bool { return s.Latest })
	return cache.NewReflectorWithOptions(newSource(f.kind, f.client, f.node, latest), f.kind.Object, f, cache.ReflectorOptions{Name: f.kind.Name})
}

// run follows objects until ctx is done.
func (f *informer) run(ctx context.Context) {
	defer close(f.done)
	for ctx.Err() == nil {
		round, cancel := context.WithCancel(ctx)
		f.follow(round, f.begin(cancel))
		cancel()
	}
}

// follow keeps one reflector running. After an API server restart, the reflector's own retries wait up to a minute;
// these wait 3 s at most.
func (f *informer) follow(ctx context.Context, r *cache.Reflector) {
	retry := newBackoff()
	logged := ""
	for ctx.Err() == nil {
		start, lists := time.Now(), f.received()
		err := r.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > 10*time.Second {
			retry.Reset()
			if f.received() > lists {
				logged = ""
			}
		}
		wait, problem, level := retry.NextBackOff(), "lost the API server, trying again", logrus.WarnLevel
		if Unavailable(err) && f.missing() {
			wait, problem = optionalRetry, "going on without these objects, asking again each minute"
			if apierrors.IsNotFound(err) {
				level = logrus.InfoLevel // an older API server
			}
		}
		if err != nil {
			if reason := reconcile.Reason(err); reason != logged { // once, not with each try
				logged = reason
				f.log.Logf(level, "%s: %v", problem, err)
			}
			f.lost(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// received counts the lists received.
func (f *informer) received() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists
}

// lost tells the subscribers why there are no objects at present, unless they go on without.
func (f *informer) lost(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.subscribers {
		if s.Lost != nil && !(s.Optional && Unavailable(err)) {
			s.Lost(err)
		}
	}
}

// missing records that the resource does not exist or must not be read by us. It sends an empty list to subscribers for
// which it is optional, unless they got one before, and reports whether it is optional for all.
func (f *informer) missing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := true
	f.listed = true
	for _, s := range f.subscribers {
		all = all && s.Optional
		if s.Optional && !s.known {
			s.replace(f.kind, unpacked[any](nil))
		}
	}
	return all
}

// Unavailable reports whether a resource does not exist, or must not be read by us.
func Unavailable(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// replace sends the full list of objects. No other event comes before the first list.
func (s *subscriber) replace(k Kind, all iter.Seq[any]) {
	s.known = true
	s.Send(Event{Kind: k, Replace: true, Objects: s.onNode(k, all)})
}

// onNode are the objects on the subscriber's node.
func (s *subscriber) onNode(k Kind, all iter.Seq[any]) iter.Seq[any] {
	if s.Node == "" {
		return all
	}
	return func(yield func(any) bool) {
		for o := range all {
			if k.node(o.(runtime.Object)) == s.Node && !yield(o) {
				return
			}
		}
	}
}

// send sends a change to all subscribers that have the list.
func (f *informer) send(obj any, gone bool) error {
	o, ok := obj.(runtime.Object)
	if !ok {
		return fmt.Errorf("watching %s: got a %T", f.kind.Name, obj)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.subscribers {
		if s.known && (s.Node == "" || f.kind.node(o) == s.Node) {
			s.Send(Event{Kind: f.kind, Object: o, Gone: gone})
		}
	}
	return nil
}

// Add implements cache.ReflectorStore.
func (f *informer) Add(obj any) error { return f.send(obj, false) }

// Update implements cache.ReflectorStore.
func (f *informer) Update(obj any) error { return f.send(obj, false) }

// Delete implements cache.ReflectorStore.
func (f *informer) Delete(obj any) error { return f.send(obj, true) }

// Replace implements cache.ReflectorStore.
func (f *informer) Replace(all []any, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed = true
	f.lists++
	for _, s := range f.subscribers {
		s.replace(f.kind, unpacked(all))
	}
	return nil
}

// Resync implements cache.ReflectorStore: the receivers do their own.
func (f *informer) Resync() error { return nil }
