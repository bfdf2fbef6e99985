// Package kube is what the watcher needs of the Kubernetes API: following pods
// and nodes, annotations, Events, a ConfigMap and a Lease. How to reach the API
// server is package client's business.
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

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// ErrGone is returned for a pod that does not exist anymore.
var ErrGone = errors.New("the pod is gone")

// A Cluster is what the watcher needs of the Kubernetes API.
type Cluster struct {
	clients  *kubernetes.Clientset
	metadata metadata.Interface
	recorder record.EventRecorder
	events   record.EventBroadcaster
	election *kubernetes.Clientset     // see electionClient
	leader   atomic.Pointer[string]    // see Leader
	refused  atomic.Pointer[error]     // see ElectionError
	held     atomic.Pointer[time.Time] // see Leads
}

// NewCluster returns a client of the API server that config names. component
// is the source of the Events that it writes. Close it to stop them.
func NewCluster(config *rest.Config, component string) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	election, err := electionClient(config)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	c := &Cluster{clients: clients, metadata: meta, election: election, events: record.NewBroadcaster()}
	c.events.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	c.recorder = c.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
	return c, nil
}

// Close stops writing Events.
func (c *Cluster) Close() { c.events.Shutdown() }

// Watch is the function Watch for this cluster.
func (c *Cluster) Watch(ctx context.Context, log *logrus.Entry, send func(Event), kinds ...Kind) {
	Watch(ctx, c.clients, log, send, kinds...)
}

// Warn writes a Warning Event about the object that ref names. It does not
// wait for the API server.
func (c *Cluster) Warn(ref *corev1.ObjectReference, reason, message string) {
	c.recorder.Event(ref, corev1.EventTypeWarning, reason, message)
}

// WarnService is Warn for a Service.
func (c *Cluster) WarnService(namespace, name, uid, reason, message string) {
	c.Warn(&corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: namespace, Name: name, UID: types.UID(uid)}, reason, message)
}

// WarnNode is Warn for a Node. Events of nodes are found by the node's name in place of its UID, as the kubelet has it.
func (c *Cluster) WarnNode(name, reason, message string) {
	c.Warn(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}, reason, message)
}

// Version is a resourceVersion as a number. Those of one kind can be compared.
// What is no number counts as 0.
func Version(resourceVersion string) uint64 {
	v, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// maxTries is how often a patch is tried that conflicts with others. The API server
// itself has tried it several times by then.
const maxTries = 3

// Annotate sets annotations of a pod, by a merge patch of its status subresource,
// which needs no right to change the pod's specification. The pod must still be
// the one with the given uid. It returns the resourceVersion that the pod has
// then, and ErrGone if there is no such pod anymore.
func (c *Cluster) Annotate(ctx context.Context, pod types.NamespacedName, uid string, annotations map[string]string) (uint64, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": uid, "annotations": annotations,
	}})
	if err != nil {
		return 0, fmt.Errorf("annotating pod %s: %w", pod, err)
	}
	var m *metav1.PartialObjectMetadata
	api := c.metadata.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(pod.Namespace)
	for tries := 1; ; tries++ { // it may conflict with the kubelet's patches of the status
		m, err = api.Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if tries == maxTries || !apierrors.IsConflict(err) {
			break
		}
	}
	if apierrors.IsNotFound(err) || otherUID(err) {
		return 0, ErrGone
	}
	if err != nil {
		return 0, fmt.Errorf("annotating pod %s: %w", pod, err)
	}
	return Version(m.ResourceVersion), nil
}

// otherUID reports whether err says that the pod is another one by now. That is
// one of several reasons why a patch is invalid: the pod's other annotations may
// leave no room for ours.
func otherUID(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// UID is the cluster's: that of the namespace kube-system. It needs the right to
// list namespaces only.
func (c *Cluster) UID(ctx context.Context) (string, error) {
	list, err := c.election.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + metav1.NamespaceSystem})
	if err != nil {
		return "", fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, err)
	}
	for _, n := range list.Items {
		return string(n.UID), nil
	}
	return "", nil
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

// WriteConfigMap gives a ConfigMap the data, unless it has it already.
func (c *Cluster) WriteConfigMap(ctx context.Context, name types.NamespacedName, data map[string]string) error {
	api := c.clients.CoreV1().ConfigMaps(name.Namespace)
	cm, err := api.Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, Data: data}
		_, err = api.Create(ctx, cm, metav1.CreateOptions{})
	case err == nil && maps.Equal(cm.Data, data):
		return nil
	case err == nil:
		cm.Data = data
		_, err = api.Update(ctx, cm, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", name, err)
	}
	return nil
}
