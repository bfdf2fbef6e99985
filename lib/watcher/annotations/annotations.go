// Package annotations writes the annotations of pods, and hides that the API server shows them late.
package annotations

import (
	"context"
	"errors"
	"iter"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/nb"
)

// patchers is the number of concurrent patches.
const patchers = 64

// A Cluster writes annotations to the API server.
type Cluster interface {
	// Leads reports whether the Lease is held.
	Leads() bool
	// Annotate patches a pod with a UID, and returns its new version.
	Annotate(ctx context.Context, pod types.NamespacedName, uid string, annotations map[string]string) (version uint64, err error)
}

// Pods are the pods and the annotations that they should have.
type Pods interface {
	Pod(u nb.Unit) (pod.Pod, bool)
	Annotation(u nb.Unit) (pod.Annotation, bool)
}

// A Writer writes the annotations of pods, concurrently with the owner of the pods. The goroutine that calls the
// functions of send owns it.
type Writer struct {
	cluster Cluster
	pods    Pods
	send    func(func() []nb.Unit)
	jobs    queue
	notes   map[pod.Key]*note
}

// A note is the pending or just written patch of one pod, as long as the API server's events do not show it.
type note struct {
	uid, value string            // value is for names.Annotation
	all        map[string]string // all annotations to write
	version    uint64            // of the pod with the value; 0 while the patch is on its way
	err        error             // of this patch, until the next try
	told       bool              // err was returned by Want
	seen       uint64            // resourceVersion of the newest object since the patch began
	former     error             // of the try before
}

// New returns a Writer.
func New(cluster Cluster, pods Pods, send func(func() []nb.Unit)) *Writer {
	return &Writer{cluster: cluster, pods: pods, send: send, jobs: queue{wake: make(chan struct{}, 1)}, notes: map[pod.Key]*note{}}
}

// Want patches the annotation of a pod to a. It returns the error of the last try until one has succeeded. The first
// call after a failure does not try again: the engine calls again after its backoff.
func (n *Writer) Want(u nb.Unit, a pod.Annotation) error {
	value := a.Addresses.Annotation()
	now := &note{uid: a.Pod.UID, value: value, all: a.Values()}
	if old := n.notes[a.Pod.Key]; old != nil && old.uid == a.Pod.UID {
		switch {
		case old.err != nil && !old.told:
			old.told = true
			return old.err
		case old.err != nil:
			now.former = old.err
		case old.version == 0:
			return old.former // on its way
		case old.value == value:
			return nil // an event is on its way
		}
	}
	if a.Written() {
		delete(n.notes, a.Pod.Key)
		return nil
	}
	n.notes[a.Pod.Key] = now
	n.jobs.put(job{u, a.Pod.Key, now})
	return now.former
}

// OverlayAll is Overlay for all objects of a kind.
func (n *Writer) OverlayAll(all iter.Seq[any]) iter.Seq[any] {
	return func(yield func(any) bool) {
		for o := range all {
			if !yield(n.Overlay(o)) {
				return
			}
		}
	}
}

// Overlay corrects an object older than the patch of its annotation. It returns a copy: other roles share the object.
func (n *Writer) Overlay(o any) any {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o
	}
	k := pod.Key{Namespace: p.Namespace, Name: p.Name}
	note := n.notes[k]
	switch {
	case note == nil:
	case note.version == 0: // not written yet
		note.seen = kube.Version(p.ResourceVersion)
	case note.uid != string(p.UID) || kube.Version(p.ResourceVersion) >= note.version:
		delete(n.notes, k)
	default:
		now := *p
		now.Annotations = maps.Clone(note.all)
		for k, v := range p.Annotations {
			if _, ours := note.all[k]; !ours {
				now.Annotations[k] = v
			}
		}
		return &now
	}
	return o
}

// Forget removes the note of a deleted object.
func (n *Writer) Forget(o any) {
	if p, ok := o.(*corev1.Pod); ok {
		delete(n.notes, pod.Key{Namespace: p.Namespace, Name: p.Name})
	}
}

// Prune removes the notes of unknown pods.
func (n *Writer) Prune() {
	maps.DeleteFunc(n.notes, func(k pod.Key, _ *note) bool {
		_, ok := n.pods.Pod(k.Unit())
		return !ok
	})
}

// Reset removes all notes when no patch is on its way. Each annotation is compared again.
func (n *Writer) Reset() { n.notes = map[pod.Key]*note{} }

// Compact releases the memory of removed notes.
func (n *Writer) Compact() { n.notes = maps.Collect(maps.All(n.notes)) }

// Run writes annotations until ctx ends. After it no annotation is on its way any more.
func (n *Writer) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for range patchers {
		wg.Go(func() {
			for n.patch(ctx) {
			}
		})
	}
	wg.Wait()
	n.jobs.clear()
}

// patch writes the next annotation. It reports false when ctx ends. While waiting, it holds no reference to the last
// job.
func (n *Writer) patch(ctx context.Context) bool {
	j, ok := n.jobs.take(ctx)
	if !ok {
		return false
	}
	version, err := uint64(0), context.Canceled
	if n.cluster.Leads() { // or the annotation may be stale: this process was frozen
		version, err = n.cluster.Annotate(ctx, types.NamespacedName(j.key), j.note.uid, j.note.all)
	}
	n.send(func() []nb.Unit { return n.done(j, version, err) })
	return true
}

// done records the end of a patch.
func (n *Writer) done(j job, version uint64, err error) []nb.Unit {
	if n.notes[j.key] != j.note {
		return nil // the pod was replaced during the patch
	}
	switch {
	case errors.Is(err, kube.ErrGone), errors.Is(err, context.Canceled):
		delete(n.notes, j.key) // its event comes, or all are compared when the Lease is held again
		return nil
	case err != nil:
		j.note.err = err
		return []nb.Unit{j.unit}
	}
	j.note.version = version
	a, ok := n.pods.Annotation(j.unit)
	switch {
	case !ok || a.Addresses.Annotation() != j.note.value:
		return []nb.Unit{j.unit} // another annotation is wanted by now
	case a.Written():
		delete(n.notes, j.key) // the event was faster
	case j.note.seen >= version: // another client has overwritten the annotation since
		delete(n.notes, j.key)
		return []nb.Unit{j.unit}
	}
	if j.note.former != nil {
		return []nb.Unit{j.unit} // to report the recovery
	}
	return nil
}

// A job is one annotation to be written.
type job struct {
	unit nb.Unit
	key  pod.Key
	note *note
}

// A queue is an unbounded list of jobs, first in, first out.
type queue struct {
	mu   sync.Mutex // guards jobs
	jobs []job
	wake chan struct{} // holds one token if there may be jobs
}

func (q *queue) put(j job) {
	q.mu.Lock()
	q.jobs = append(q.jobs, j)
	q.mu.Unlock()
	q.signal()
}

func (q *queue) clear() {
	q.mu.Lock()
	q.jobs = nil
	q.mu.Unlock()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take waits for the next job. It reports false when ctx ends.
func (q *queue) take(ctx context.Context) (job, bool) {
	for {
		select {
		case <-ctx.Done():
			return job{}, false
		case <-q.wake:
		}
		q.mu.Lock()
		if len(q.jobs) == 0 {
			q.mu.Unlock()
			continue
		}
		j := q.jobs[0]
		q.jobs[0] = job{} // or the array would keep its note
		q.jobs = q.jobs[1:]
		more := len(q.jobs) > 0
		if !more {
			q.jobs = nil
		}
		q.mu.Unlock()
		if more {
			q.signal()
		}
		return j, true
	}
}
