package cni

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/defect"
	"ovn-k8s/lib/desired/pod/annotation"
	"ovn-k8s/lib/kube/client"
	"ovn-k8s/lib/names"
)

// mirrorOf is the annotation of a static pod's mirror in the API server. Its value is the pod's UID in the kubelet
// and the runtime (k8s.io/kubernetes, pkg/kubelet/types).
const mirrorOf = "kubernetes.io/config.mirror"

// known is the data of a pod from the API server.
type known struct {
	uid       string
	addresses annotation.Addresses
	limits    bandwidth
}

// A podWatch follows a pod during its ADD.
type podWatch struct {
	pod   podRef
	hint  string // see Hints
	began time.Time
	stop  context.CancelFunc
	ready chan struct{} // closed when latest or refused is set
	ended chan struct{} // closed at the end of the watch

	mu      sync.Mutex
	latest  *known
	refused error // a *types.Error: the user must change the pod
	problem error // why the latest annotations are not usable
	last    error // the error of the watch
}

// A PodReader waits for single pods, as client.Pods does: see there.
type PodReader interface {
	Wait(ctx context.Context, namespace, name string, ready func(*metav1.ObjectMeta) bool) (*metav1.ObjectMeta, error)
}

// Pods are the pods of a host, followed for all requests.
type Pods interface {
	PodReader
	// Refused returns an error if the API server refuses to show them. An ADD waits for a server that does not answer.
	Refused() error
}

// reader returns the source of the pod.
func (n *node) reader() (PodReader, error) {
	if n.pods != nil && (n.config.APIServer != "" || n.config.Kubeconfig != "") {
		return n.pods, nil
	}
	return client.NewPods(client.FromConfig(n.config, program))
}

// watchPod starts following the pod. The watch must be stopped.
func (a *addition) watchPod(ctx context.Context) (*podWatch, error) {
	pods, err := a.reader()
	if err != nil {
		if errors.Is(err, config.ErrNoAPIServer) {
			return nil, types.NewError(types.ErrInvalidNetworkConfig, "failed to get K8S_API_SERVER", "external_ids:k8s-api-server is not set in the table Open_vSwitch")
		}
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "bad configuration of "+program, oneLine(err))
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &podWatch{pod: a.pod, hint: a.hints.Annotation, began: time.Now(), ready: make(chan struct{}), ended: make(chan struct{})}
	w.stop = func() { cancel(); <-w.ended }
	go func() {
		defer close(w.ended)
		err := defect.Catch(func() error {
			_, err := pods.Wait(ctx, w.pod.namespace, w.pod.name, func(m *metav1.ObjectMeta) bool {
				w.see(m)
				return false // its annotation may still change
			})
			return err
		})
		a.reportDefect(err)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.last = err
	}()
	return w, nil
}

// see handles a new version of the pod. An invalid annotation was written by a user; the watcher replaces it.
func (w *podWatch) see(m *metav1.ObjectMeta) {
	k, err := read(w.pod, m)
	var refusal *types.Error
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problem = err
	if w.latest == nil && w.refused == nil && (err == nil || errors.As(err, &refusal)) {
		defer close(w.ready)
	}
	if err == nil {
		w.latest = k
	} else if refusal != nil {
		w.refused = refusal
	}
}

// read extracts the data for ADD from a pod. The error names the missing data; it is a *types.Error if waiting does
// not help.
func read(ref podRef, m *metav1.ObjectMeta) (*known, error) {
	if ref.uid != "" && ref.uid != string(m.UID) && ref.uid != m.Annotations[mirrorOf] {
		return nil, fmt.Errorf("the API server has another pod with this name: UID %s instead of %s", m.UID, ref.uid)
	}
	limits, err := parseBandwidth(m.Annotations)
	if err != nil {
		return nil, err
	}
	value, ok := m.Annotations[names.Annotation]
	if !ok {
		return nil, fmt.Errorf("it has no annotation %q", names.Annotation)
	}
	if uid, ok := m.Annotations[names.AnnotationUID]; ok && uid != string(m.UID) {
		return nil, fmt.Errorf("its annotation %q was copied from a pod with UID %s", names.Annotation, uid)
	}
	addresses, err := annotation.Parse(value)
	if err != nil {
		return nil, err
	}
	return &known{string(m.UID), addresses, limits}, nil
}

// first waits until the pod's addresses are known.
func (w *podWatch) first(ctx context.Context) (known, error) {
	select {
	case <-w.ready:
	case <-w.ended: // by a defect
	case <-ctx.Done():
		w.stop()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.latest != nil {
		return *w.latest, nil
	}
	if w.refused != nil {
		return known{}, w.refused
	}
	why := "the API server has not shown it: " + fmt.Sprint(w.last)
	if w.problem != nil {
		why = oneLine(w.problem) + ": " + w.hint
	}
	return known{}, types.NewError(types.ErrTryAgainLater, "failed to get pod annotation", fmt.Sprintf("pod %s after %s: %s", w.pod, since(w.began), why))
}

// since is the time since t, rounded for people.
func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }

// unchanged returns an error if the pod's addresses have changed since k: a user had written the annotation, and the
// watcher has replaced it.
func (w *podWatch) unchanged(k known) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.problem == nil && w.latest != nil && w.latest.uid == k.uid && reflect.DeepEqual(w.latest.addresses, k.addresses) {
		return nil
	}
	return types.NewError(types.ErrTryAgainLater, "the pod's annotation changed", fmt.Sprintf("pod %s was being attached as %s", w.pod, k.addresses.Annotation()))
}
