package cniserver

import (
	"context"
	"fmt"
	"sync"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/kube"
)

// Pods are the pods of a node, from an informer.
type Pods struct {
	mu      sync.Mutex
	known   map[types.NamespacedName]*metav1.ObjectMeta // nil: not listed yet
	waiting map[types.NamespacedName][]chan struct{}    // of Wait; each has room for one value
	lost    error                                       // why the informer has no connection
}

// NewPods returns no pods yet: see Follow.
func NewPods() *Pods { return &Pods{waiting: map[types.NamespacedName][]chan struct{}{}} }

// A Follower follows objects, such as *kube.Informers or *kube.Cluster.
type Follower interface {
	Follow(ctx context.Context, log *logrus.Entry, subscriptions ...kube.Subscription)
}

// Follow follows the pods of a node until ctx ends. It may be called again, with other informers: the pods stay known.
func (p *Pods) Follow(ctx context.Context, informers Follower, node string, log *logrus.Entry) {
	informers.Follow(ctx, log, kube.Subscription{Kind: kube.KindOf(&corev1.Pod{}), Node: node, Send: p.record, Lost: p.setLost})
}

// record records a change.
func (p *Pods) record(e kube.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Replace {
		p.lost, p.known = nil, map[types.NamespacedName]*metav1.ObjectMeta{}
		for o := range e.Objects {
			p.put(o.(*corev1.Pod))
		}
		for name := range p.waiting {
			p.wake(name)
		}
		return
	}
	pod := e.Object.(*corev1.Pod)
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if e.Gone {
		delete(p.known, name)
	} else {
		p.put(pod)
	}
	p.wake(name)
}

// put records a pod. p.mu is held.
func (p *Pods) put(pod *corev1.Pod) {
	p.known[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = &pod.ObjectMeta
}

// wake wakes the calls of Wait for a pod. p.mu is held.
func (p *Pods) wake(name types.NamespacedName) {
	for _, c := range p.waiting[name] {
		select {
		case c <- struct{}{}:
		default: // it is awake
		}
	}
}

func (p *Pods) setLost(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = err
}

// Refused returns an error if the API server refuses to list the pods; nil: they are known, or will be once it answers.
func (p *Pods) Refused() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known != nil || !kube.Refuses(p.lost) {
		return nil
	}
	return fmt.Errorf("the API server does not list them: %w", p.lost)
}

// Wait returns the metadata of a pod as soon as ready accepts it. The pod need not exist yet. If ctx ends first, Wait
// returns the last metadata, nil if there is no such pod, and an error wrapping ctx's and that of a lost connection.
func (p *Pods) Wait(ctx context.Context, namespace, name string, ready func(*metav1.ObjectMeta) bool) (*metav1.ObjectMeta, error) {
	pod := types.NamespacedName{Namespace: namespace, Name: name}
	changed := p.join(pod)
	defer p.leave(pod, changed)
	var last *metav1.ObjectMeta
	for {
		now, _ := p.get(pod)
		if now != last && now != nil && ready(now) {
			return now, nil
		}
		last = now
		select {
		case <-changed:
		case <-ctx.Done():
			err := ctx.Err()
			if _, lost := p.get(pod); lost != nil {
				err = fmt.Errorf("%w (%w)", err, lost)
			}
			return last, fmt.Errorf("waiting for pod %s/%s: %w", namespace, name, err)
		}
	}
}

// join adds a call of Wait.
func (p *Pods) join(pod types.NamespacedName) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := make(chan struct{}, 1)
	p.waiting[pod] = append(p.waiting[pod], c)
	return c
}

// leave removes a call of Wait.
func (p *Pods) leave(pod types.NamespacedName, c chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var others []chan struct{}
	for _, o := range p.waiting[pod] {
		if o != c {
			others = append(others, o)
		}
	}
	if p.waiting[pod] = others; others == nil {
		delete(p.waiting, pod)
	}
}

func (p *Pods) get(pod types.NamespacedName) (*metav1.ObjectMeta, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[pod], p.lost
}
