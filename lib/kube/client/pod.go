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

// Pods reads the metadata of single pods.
type Pods struct{ client metadata.Interface }

// NewPods returns a reader that uses c. It does not connect yet.
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

// Wait returns the metadata of a pod as soon as ready accepts it. The pod need
// not exist yet. When ctx ends before, Wait returns the latest it has seen, nil
// if there is no such pod, and an error that wraps ctx's, and the API server's
// if that kept it from seeing.
//
// One request does it: a watch without a resource version begins with the pod
// as it is. It is not asked again unless the server ends it.
func (p *Pods) Wait(ctx context.Context, namespace, name string, ready func(*metav1.ObjectMeta) bool) (*metav1.ObjectMeta, error) {
	w := &waiter{ready: ready}
	retry := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 6, Cap: time.Second}
	err := retry.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		w.trouble = p.watch(ctx, namespace, name, w)
		return w.done, nil
	})
	if err == nil {
		return w.last, nil
	}
	// why ctx ended, and not that the request noticed it
	if w.trouble != nil && !errors.Is(w.trouble, context.Cause(ctx)) && !errors.Is(w.trouble, ctx.Err()) {
		err = fmt.Errorf("%w (%w)", err, w.trouble)
	}
	return w.last, fmt.Errorf("waiting for pod %s/%s: %w", namespace, name, err)
}

// A waiter is what Wait has seen so far.
type waiter struct {
	ready   func(*metav1.ObjectMeta) bool
	last    *metav1.ObjectMeta
	done    bool
	trouble error // of the latest watch
}

// watch follows the pod until w is done, or the server or ctx ends it.
func (p *Pods) watch(ctx context.Context, namespace, name string, w *waiter) error {
	pods := p.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(namespace)
	events, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		return err
	}
	defer events.Stop()
	for e := range events.ResultChan() {
		if err := w.take(e); err != nil || w.done {
			return err
		}
	}
	return ctx.Err()
}

// take looks at one event.
func (w *waiter) take(e watch.Event) error {
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
