package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// An Event is a change of objects of one kind.
type Event struct {
	Kind    runtime.Object // an empty object of the kind
	Object  runtime.Object // the object as it is now, or as it was last if Gone
	Gone    bool
	Replace bool  // Objects are all that there are of the kind, and Object is nil
	Objects []any // runtime.Objects of the kind
}

// Watch sends every change of all Pods and Nodes until ctx is done: first one
// Replace of each kind, then single changes, and a Replace again whenever the
// connection was lost for too long. send must not block. No copy of the objects
// is kept here: the receiver owns them.
func Watch(ctx context.Context, core rest.Interface, log *logrus.Entry, send func(Event)) {
	done := make(chan struct{}, 2)
	for resource, kind := range map[string]runtime.Object{"pods": &corev1.Pod{}, "nodes": &corev1.Node{}} {
		go func() {
			defer func() { done <- struct{}{} }()
			follow(ctx, core, resource, &sink{kind, send}, log)
		}()
	}
	<-done
	<-done
}

// follow keeps one reflector running. The reflector's own retries wait for up
// to a minute after an API server restart; ours wait 3 s at the most.
func follow(ctx context.Context, core rest.Interface, resource string, s *sink, log *logrus.Entry) {
	lw := cache.NewListWatchFromClient(core, resource, corev1.NamespaceAll, fields.Everything())
	r := cache.NewReflectorWithOptions(failFast{lw}, s.kind, s, cache.ReflectorOptions{Name: resource})
	retry := newBackoff()
	for ctx.Err() == nil {
		start := time.Now()
		err := r.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > 10*time.Second {
			retry.Reset()
		}
		if err != nil {
			log.WithField("resource", resource).Warnf("lost the API server, trying again: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry.NextBackOff()):
		}
	}
}

// failFast makes the reflector return from a watch that it cannot open, where
// it would wait and try again by itself.
type failFast struct{ *cache.ListWatch }

// WatchWithContext implements cache.ListerWatcherWithContext.
func (f failFast) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := f.ListWatch.WatchWithContext(ctx, options)
	if utilnet.IsConnectionRefused(err) {
		return nil, errors.New(err.Error()) // hides from the reflector what it would wait for
	}
	return w, err
}

// sink is where the reflector stores what it sees: it sends it on.
type sink struct {
	kind runtime.Object
	send func(Event)
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
	s.send(Event{Kind: s.kind, Replace: true, Objects: objs})
	return nil
}

// Resync implements cache.ReflectorStore: the receiver does its own.
func (s *sink) Resync() error { return nil }

func (s *sink) check(obj any) (runtime.Object, error) {
	o, ok := obj.(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("watching %T: got a %T", s.kind, obj)
	}
	return o, nil
}
