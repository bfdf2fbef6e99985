package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
)

// An Event is a change of objects of one kind. Objects have only the fields kept by trim.
type Event struct {
	Kind    Kind
	Object  runtime.Object // the current object or, if Gone, its last state
	Gone    bool
	Replace bool  // Objects is the full list of the kind, and Object is nil
	Objects []any // runtime.Objects of the kind
}

// Watch sends every change of all objects of some kinds until ctx is done: first one Replace of each kind, then
// single changes, and a Replace again after a long loss of the connection. send must not block. The receiver owns the
// objects; no copy is kept here.
func Watch(ctx context.Context, c kubernetes.Interface, log *logrus.Entry, send func(Event), kinds ...Kind) {
	var wg sync.WaitGroup
	for _, k := range kinds {
		wg.Go(func() {
			follow(ctx, k, k.list(c), &sink{kind: k, send: send, optional: k.describe().optional}, log)
		})
	}
	wg.Wait()
}

// list returns the ListWatch for all objects of a kind.
func (k Kind) list(c kubernetes.Interface) *cache.ListWatch {
	return cache.NewListWatchFromClient(k.describe().client(c), string(k), corev1.NamespaceAll, fields.Everything())
}

// List returns the current objects of some kinds, as one Replace of each kind.
func (c *Cluster) List(ctx context.Context, kinds ...Kind) ([]Event, error) {
	var out []Event
	for _, k := range kinds {
		e := Event{Kind: k, Replace: true}
		list, err := source{k.list(c.clients)}.ListWithContext(ctx, metav1.ListOptions{})
		if k.describe().optional && unavailable(err) {
			out = append(out, e)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", k, err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			e.Objects = append(e.Objects, o)
			return nil
		}); err != nil {
			return nil, fmt.Errorf("listing %s: %w", k, err)
		}
		out = append(out, e)
	}
	return out, nil
}

// follow keeps one reflector running. After an API server restart, the reflector's own retries wait up to a minute;
// these wait 3 s at most.
func follow(ctx context.Context, k Kind, lw *cache.ListWatch, s *sink, log *logrus.Entry) {
	resource := string(k)
	r := cache.NewReflectorWithOptions(source{lw}, k.Object(), s, cache.ReflectorOptions{Name: resource})
	retry := newBackoff()
	logged := ""
	for ctx.Err() == nil {
		start := time.Now()
		err := r.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > 10*time.Second {
			retry.Reset()
			logged = ""
		}
		if err != nil && err.Error() != logged { // once, not with each try
			logged = err.Error()
			log.WithField("resource", resource).Warnf("lost the API server, trying again: %v", err)
		}
		wait := retry.NextBackOff()
		if s.missing(err) {
			wait = optionalRetry
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// source is the input of the reflector.
type source struct{ *cache.ListWatch }

// ListWithContext implements cache.ListerWithContext. It reads the latest state page by page and trims each page,
// because all objects in full would take hundreds of megabytes in a large cluster.
func (s source) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.ResourceVersion, options.ResourceVersionMatch = "", ""
	list, _, err := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		page, err := s.ListWatch.ListWithContext(ctx, options)
		if err != nil {
			return nil, err
		}
		return page, meta.EachListItem(page, trim)
	}).List(ctx, options)
	return list, err
}

// WatchWithContext implements cache.WatcherWithContext. It trims objects as ListWithContext does, and hides refused
// connections from the reflector, which would wait.
func (s source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := s.ListWatch.WatchWithContext(ctx, options)
	if utilnet.IsConnectionRefused(err) {
		return nil, errors.New(err.Error())
	}
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if e.Type == watch.Bookmark || e.Type == watch.Error {
			return e, true // handled by the reflector
		}
		if err := trim(e.Object); err != nil {
			return watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(err).ErrStatus}, true
		}
		return e, true
	}), nil
}

// sink is the reflector's store: it forwards each change to send.
type sink struct {
	kind     Kind
	send     func(Event)
	optional bool // the kind is optional
	known    bool // a Replace was sent
}

// Add implements cache.ReflectorStore.
func (s *sink) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *sink) Update(obj any) error {
	o, err := s.check(obj)
	if err == nil {
		s.send(Event{Kind: s.kind, Object: o})
	}
	return err
}

// Delete implements cache.ReflectorStore.
func (s *sink) Delete(obj any) error {
	o, err := s.check(obj)
	if err == nil {
		s.send(Event{Kind: s.kind, Object: o, Gone: true})
	}
	return err
}

// Replace implements cache.ReflectorStore.
func (s *sink) Replace(objs []any, _ string) error {
	s.known = true
	s.send(Event{Kind: s.kind, Replace: true, Objects: objs})
	return nil
}

// Resync implements cache.ReflectorStore: the receiver does its own.
func (s *sink) Resync() error { return nil }

func (s *sink) check(obj any) (runtime.Object, error) {
	o, ok := obj.(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("watching %s: got a %T", s.kind, obj)
	}
	return o, nil
}
