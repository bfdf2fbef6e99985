// Package kube is the watcher's interface to the Kubernetes API: following objects, annotations, Events, a ConfigMap
// and a Lease. Connecting to the API server is in package client.
package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"ovn-k8s/lib/kube/client"
)

// ErrGone is returned for a pod or Node that does not exist anymore.
var ErrGone = errors.New("the object is gone")

// A Cluster is the watcher's client of the Kubernetes API.
type Cluster struct {
	*Informers
	clients  *kubernetes.Clientset
	metadata metadata.Interface
	recorder record.EventRecorder
	events   record.EventBroadcaster
	server   *rest.Config
	election atomic.Pointer[kubernetes.Clientset] // see electionClient; Lead makes one for its times
	leader   atomic.Pointer[string]               // see Leader
	refused  atomic.Pointer[error]                // see ElectionError
	held     atomic.Pointer[time.Duration]        // see Leads
	clock    func() time.Duration                 // sinceBoot but for tests
}

// NewCluster returns a client of config's API server. component is the source of its Events, which are about objects of
// the table and of more kinds. Close it to stop writing Events. share returns the informers, perhaps those of other
// roles of the process; nil means its own.
func NewCluster(config *rest.Config, component string, share Sharing, more ...Kind) (*Cluster, error) {
	if share == nil {
		share = NewInformers
	}
	informers := share(config)
	kinds := append(Kinds(), more...)
	if err := informers.add(kinds); err != nil {
		return nil, err
	}
	all, err := schemeOf(kinds...)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	preferProtobuf(config)
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	election, err := electionClient(config, defaultTimes())
	if err != nil {
		return nil, err
	}
	c := &Cluster{Informers: informers, clients: clients, metadata: meta, server: config, events: record.NewBroadcaster(), clock: sinceBoot}
	c.election.Store(election)
	c.events.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	c.recorder = c.events.NewRecorder(all, corev1.EventSource{Component: component})
	return c, nil
}

// Close stops writing Events.
func (c *Cluster) Close() { c.events.Shutdown() }

// Warn writes a Warning Event about an object, of which the type, name and UID count. It does not wait for the API server.
func (c *Cluster) Warn(about runtime.Object, reason, message string) {
	c.recorder.Event(about, corev1.EventTypeWarning, reason, message)
}

// Node is a Node for Warn. The UID is the node's name, as in the kubelet's Events; tools look for that.
func Node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
}

// Version is a resourceVersion as a number, 0 if it is none. Versions of one kind can be compared.
func Version(resourceVersion string) uint64 {
	v, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// maxTries bounds the tries of a conflicting patch. The API server retries by itself, too.
const maxTries = 3

// Annotate sets annotations of a pod by a merge patch of its status subresource, so it needs no permission to change
// the pod's spec. The pod must have this uid. It returns the pod's new resourceVersion, or ErrGone if the pod does
// not exist anymore.
func (c *Cluster) Annotate(ctx context.Context, pod types.NamespacedName, uid string, annotations map[string]string) (uint64, error) {
	m, err := annotate(ctx, c.metadata.Resource(client.Resource()).Namespace(pod.Namespace), pod.Name, uid, annotations)
	if err != nil {
		return 0, fmt.Errorf("annotating pod %s: %w", pod, err)
	}
	return Version(m.ResourceVersion), nil
}

// AnnotateNode is Annotate for a Node. An empty value removes an annotation.
func (c *Cluster) AnnotateNode(ctx context.Context, name, uid string, annotations map[string]string) error {
	values := map[string]*string{}
	for key, v := range annotations {
		if values[key] = &v; v == "" {
			values[key] = nil
		}
	}
	if _, err := annotate(ctx, c.metadata.Resource(corev1.SchemeGroupVersion.WithResource("nodes")), name, uid, values); err != nil {
		return fmt.Errorf("annotating node %s: %w", name, err)
	}
	return nil
}

// annotate patches annotations of an object with a UID.
func annotate[T any](ctx context.Context, api metadata.ResourceInterface, name, uid string, annotations map[string]T) (*metav1.PartialObjectMetadata, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": annotations}})
	if err != nil {
		return nil, err
	}
	var m *metav1.PartialObjectMetadata
	for tries := 1; ; tries++ { // it may conflict with the kubelet's patches of the status
		m, err = api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if tries == maxTries || !apierrors.IsConflict(err) {
			break
		}
	}
	if apierrors.IsNotFound(err) || otherUID(err) {
		return nil, ErrGone
	}
	return m, err
}

// otherUID reports whether the patch failed because the pod's UID differs. A patch may be invalid for other reasons,
// for example if the pod's annotations are full.
func otherUID(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// UID identifies the cluster: the UID of the namespace kube-system. It needs only permission to list namespaces.
func (c *Cluster) UID(ctx context.Context) (string, error) {
	list, err := c.election.Load().CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + metav1.NamespaceSystem})
	if err != nil {
		return "", fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, err)
	}
	for _, n := range list.Items {
		return string(n.UID), nil
	}
	return "", nil
}

// ReadNode returns a Node with the fields that are kept, nil if there is none. It needs the permission to list Nodes, as
// Follow does.
func (c *Cluster) ReadNode(ctx context.Context, name string) (*corev1.Node, error) {
	list, err := c.clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, fmt.Errorf("reading Node %s: %w", name, err)
	}
	for i := range list.Items {
		kept := keepNode(&list.Items[i])
		return &kept, nil
	}
	return nil, nil
}

// Alive returns an error unless the API server answers.
func (c *Cluster) Alive(ctx context.Context) error {
	if err := c.election.Load().Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil && Unreachable(err) {
		return fmt.Errorf("asking the API server: %w", err)
	}
	return nil
}

// ReadConfigMap returns the data of a ConfigMap, nil if there is none.
func (c *Cluster) ReadConfigMap(ctx context.Context, name types.NamespacedName) (map[string]string, error) {
	cm, err := c.clients.CoreV1().ConfigMaps(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", name, err)
	}
	return cm.Data, nil
}

// WriteConfigMap sets the data of a ConfigMap, and returns the ConfigMap without them. last is what the call before
// returned, nil if unknown: the ConfigMap is read, and compared, only if others have changed it since.
func (c *Cluster) WriteConfigMap(ctx context.Context, name types.NamespacedName, data map[string]string, last *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	cm, err := c.writeConfigMap(ctx, name, data, last)
	if last != nil && (apierrors.IsConflict(err) || apierrors.IsNotFound(err)) {
		cm, err = c.writeConfigMap(ctx, name, data, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("writing ConfigMap %s: %w", name, err)
	}
	cm.Data = nil
	return cm, nil
}

func (c *Cluster) writeConfigMap(ctx context.Context, name types.NamespacedName, data map[string]string, last *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	api := c.clients.CoreV1().ConfigMaps(name.Namespace)
	cm := last.DeepCopy()
	if cm == nil {
		var err error
		cm, err = api.Get(ctx, name.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, Data: data}
			return api.Create(ctx, cm, metav1.CreateOptions{})
		}
		if err != nil || maps.Equal(cm.Data, data) {
			return cm, err
		}
	}
	cm.Data = data
	return api.Update(ctx, cm, metav1.UpdateOptions{})
}
