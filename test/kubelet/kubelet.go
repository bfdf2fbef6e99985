// Package kubelet replaces the kubelet and the container runtime on a test host. It
// registers the host as a Node, runs each pod bound to it as a network namespace
// connected by CNI plugins, reports the pod's status, and removes it.
//
// It calls plugins through libcni, as containerd does, inside the host and with the
// host's configuration. Every pod runs a server of package probe, answering with
// the pod's name. Everything else runs in this process.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
)

const (
	// DefaultPort is the port of pods without a container port.
	DefaultPort = 8080

	// workers is the number of pods processed in parallel. A real kubelet has one
	// worker per pod.
	workers = 64
	// readyInterval is the time between two checks of the node's readiness.
	readyInterval = 50 * time.Millisecond
	// cniTimeout bounds one call of the plugins, as in containerd under a kubelet.
	cniTimeout = 2 * time.Minute

	firstRetry, lastRetry = 100 * time.Millisecond, 5 * time.Second
)

// Options configure New.
type Options struct {
	// Host runs the pods.
	Host *host.Host
	// Client is a client of the API server.
	Client kubernetes.Interface
	// Node is the Node's name. Default: the host's name. The Node is created, or
	// adopted if it exists.
	Node string
	// Log receives a line for each failure; failures are retried. It may be nil.
	Log func(format string, args ...any)
}

// A Kubelet serves a host. Its methods are safe for concurrent use.
type Kubelet struct {
	opts Options
	node string
	cni  *network
	life context.Context // of the sandboxes
	end  context.CancelFunc

	mu        sync.Mutex
	sandboxes map[types.NamespacedName]*Sandbox
	stop      context.CancelFunc // nil: stopped
	wg        sync.WaitGroup

	lister corelisters.PodLister
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]
}

// New returns a Kubelet. It does nothing until Start. The caller must Close it.
func New(o Options) *Kubelet {
	if o.Node == "" {
		o.Node = o.Host.Name
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	k := &Kubelet{opts: o, node: o.Node, cni: newNetwork(o.Host), sandboxes: map[types.NamespacedName]*Sandbox{}}
	k.life, k.end = context.WithCancel(context.Background())
	return k
}

// Start registers the Node, calls the plugins with the list of existing sandboxes
// (CNI GC), and serves pods until Stop.
func (k *Kubelet) Start(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stop != nil {
		return errors.New("starting the kubelet: it runs")
	}
	if err := k.register(ctx); err != nil {
		return fmt.Errorf("registering node %s: %w", k.node, err)
	}
	if err := k.cni.collect(ctx, k.sandboxes); err != nil {
		k.opts.Log("collecting garbage on %s: %v", k.node, err)
	}
	serving, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactoryWithOptions(k.opts.Client, 0, informers.WithTweakListOptions(
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", k.node).String()
		}))
	pods := factory.Core().V1().Pods()
	k.lister = pods.Lister()
	k.queue = workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry))
	if _, err := pods.Informer().AddEventHandler(k.handler(k.queue)); err != nil {
		cancel()
		return err
	}
	factory.Start(serving.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.Informer().HasSynced) {
		cancel()
		return fmt.Errorf("listing the pods of %s: %w", k.node, ctx.Err())
	}
	for pod := range k.sandboxes {
		k.queue.Add(pod) // it may be gone
	}
	k.stop = cancel
	for range workers {
		k.wg.Go(func() { k.work(serving, k.queue, k.lister) })
	}
	k.wg.Go(func() { k.watchReadiness(serving) })
	return nil
}

// handler puts the keys of changed pods into the queue.
func (k *Kubelet) handler(queue workqueue.TypedRateLimitingInterface[types.NamespacedName]) cache.ResourceEventHandler {
	add := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			queue.Add(name.AsNamespacedName())
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }, DeleteFunc: add}
}

// Stop ends the kubelet's work, as when the real one is restarted: pods keep running.
func (k *Kubelet) Stop() {
	k.mu.Lock()
	stop := k.stop
	k.stop = nil
	k.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	k.queue.ShutDown()
	k.wg.Wait()
}

// Close stops the kubelet and drops all pods without calling any plugin, like a
// power failure. It kills a running plugin call. It does not close the host.
func (k *Kubelet) Close() {
	k.end()
	k.Stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	for pod, s := range k.sandboxes {
		s.close()
		delete(k.sandboxes, pod)
	}
}

// Sandbox returns the sandbox of a running pod, or nil.
func (k *Kubelet) Sandbox(namespace, name string) *Sandbox {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sandboxes[types.NamespacedName{Namespace: namespace, Name: name}]
}

// work takes pods from the queue until it is shut down.
func (k *Kubelet) work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[types.NamespacedName], pods corelisters.PodLister) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		if err := k.sync(ctx, key, pods); err != nil && ctx.Err() == nil {
			k.opts.Log("serving pod %v on %s: %v", key, k.node, err)
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

// sync creates or removes the sandbox of one pod to match its object. There are no
// concurrent calls for the same pod.
func (k *Kubelet) sync(ctx context.Context, key types.NamespacedName, pods corelisters.PodLister) error {
	pod, err := pods.Pods(key.Namespace).Get(key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	sandbox := k.Sandbox(key.Namespace, key.Name)
	if err == nil && sandbox != nil && pod.UID == sandbox.uid && pod.DeletionTimestamp != nil {
		if wait := sandbox.preStop(pod, time.Now()); wait > 0 {
			k.queue.AddAfter(key, wait)
			return nil
		}
	}
	if sandbox != nil && (err != nil || pod.UID != sandbox.uid || pod.DeletionTimestamp != nil || finished(pod)) {
		if err := k.tearDown(key, sandbox); err != nil {
			return err
		}
		sandbox = nil
	}
	switch {
	case err != nil || finished(pod) && pod.DeletionTimestamp == nil:
		return nil
	case pod.DeletionTimestamp != nil:
		return k.finishDeletion(ctx, pod)
	case sandbox == nil:
		if sandbox, err = k.setUp(key, pod); err != nil {
			return err
		}
	}
	return k.reportRunning(ctx, pod, sandbox)
}

// setUp runs a pod. It completes even if the kubelet stops meanwhile: in reality
// the container runtime does this work.
func (k *Kubelet) setUp(key types.NamespacedName, pod *corev1.Pod) (*Sandbox, error) {
	ctx, cancel := context.WithTimeout(k.life, limit.Of(cniTimeout))
	defer cancel()
	sandbox, err := k.cni.setUp(ctx, pod)
	if err != nil {
		return nil, fmt.Errorf("setting up: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sandboxes[key] = sandbox
	return sandbox, nil
}

func (k *Kubelet) tearDown(key types.NamespacedName, sandbox *Sandbox) error {
	ctx, cancel := context.WithTimeout(k.life, limit.Of(cniTimeout))
	defer cancel()
	if err := k.cni.tearDown(ctx, sandbox); err != nil {
		return fmt.Errorf("tearing down: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.sandboxes, key)
	return nil
}

// preStop returns the remaining sleep of a pod's preStop hooks at now. The sleep begins with the first call.
func (s *Sandbox) preStop(pod *corev1.Pod, now time.Time) time.Duration {
	if s.deleted.IsZero() {
		s.deleted = now
	}
	var sleep time.Duration
	for _, c := range pod.Spec.Containers {
		if l := c.Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
			sleep = max(sleep, time.Duration(l.PreStop.Sleep.Seconds)*time.Second)
		}
	}
	return s.deleted.Add(sleep).Sub(now)
}

// finished reports whether a pod has ended for good.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
