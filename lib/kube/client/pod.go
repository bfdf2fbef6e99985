package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

// Resource is the resource of pods.
func Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

// Pods reads the metadata of single pods.
type Pods struct{ client metadata.Interface }

// NewPods returns a reader using c. It does not connect yet.
func NewPods(c Config) (*Pods, error) {
	cfg, err := c.REST()
	if err != nil {
		return nil, err
	}
	m, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing a client for the API server: %w", err)
	}
	return &Pods{m}, nil
}

// Wait returns the metadata of a pod as soon as ready accepts it. The pod need not exist yet. If ctx ends first, Wait
// returns the last metadata seen, nil if there is no such pod, and an error wrapping ctx's and any error of the API
// server.
//
// It takes one request: a watch without a resource version begins with the current pod. It is repeated only if the
// server ends it.
func (p *Pods) Wait(ctx context.Context, namespace, name string, ready func(*metav1.ObjectMeta) bool) (*metav1.ObjectMeta, error) {
	w := &waiter{ready: ready}
	retry := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 6, Cap: time.Second}
	err := retry.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		w.watchErr = p.watch(ctx, namespace, name, w)
		return w.done, nil
	})
	if err == nil {
		return w.last, nil
	}
	// report the cause of ctx, not the request's error about it
	if w.watchErr != nil && !errors.Is(w.watchErr, context.Cause(ctx)) && !errors.Is(w.watchErr, ctx.Err()) {
		err = fmt.Errorf("%w (%w)", err, w.watchErr)
	}
	return w.last, fmt.Errorf("waiting for pod %s/%s: %w", namespace, name, err)
}

// A waiter is the state of Wait.
type waiter struct {
	ready    func(*metav1.ObjectMeta) bool
	last     *metav1.ObjectMeta
	done     bool
	watchErr error // of the latest watch
}

// watch follows the pod until w is done, or the server or ctx ends the watch.
func (p *Pods) watch(ctx context.Context, namespace, name string, w *waiter) error {
	pods := p.client.Resource(Resource()).Namespace(namespace)
	events, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		return err
	}
	defer events.Stop()
	for e := range events.ResultChan() {
		if err := w.handle(e); err != nil || w.done {
			return err
		}
	}
	return ctx.Err()
}

// handle processes one event.
func (w *waiter) handle(e watch.Event) error {
	switch pod, isPod := e.Object.(*metav1.PartialObjectMetadata); {
	case e.Type == watch.Error:
		return apierrors.FromObject(e.Object)
	case e.Type == watch.Deleted:
		w.last = nil
	case isPod:
		w.last = &pod.ObjectMeta
		w.done = w.ready(w.last)
	}
	return nil
}
