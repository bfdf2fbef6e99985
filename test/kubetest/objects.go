package kubetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"ovn-k8s/test/poll"
)

// CreateNode creates a Ready node with the given internal addresses.
func (c *Cluster) CreateNode(ctx context.Context, name string, addrs ...netip.Addr) (*corev1.Node, error) {
	return c.client.CoreV1().Nodes().Create(ctx, Node(name, addrs...), metav1.CreateOptions{})
}

// Node returns a Ready node with the given internal addresses.
func Node(name string, addrs ...netip.Addr) *corev1.Node {
	room := corev1.ResourceList{ // required by the scheduler
		corev1.ResourcePods:   resource.MustParse("10k"),
		corev1.ResourceCPU:    resource.MustParse("1k"),
		corev1.ResourceMemory: resource.MustParse("1Ti"),
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{
			Capacity:    room,
			Allocatable: room,
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test"}},
			Addresses:   []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
		},
	}
	for _, a := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	return n
}

// Pod returns a minimal pod, bound to node if that is not "".
func Pod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			Containers:                    []corev1.Container{{Name: "main", Image: "none"}},
			TerminationGracePeriodSeconds: new(int64),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
}

// CreatePod creates the pod of Pod. edit, if not nil, changes it before creation.
func (c *Cluster) CreatePod(ctx context.Context, namespace, name, node string, edit func(*corev1.Pod)) (*corev1.Pod, error) {
	pod := Pod(namespace, name, node)
	if edit != nil {
		edit(pod)
	}
	return c.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
}

// DeletePod deletes a pod at once, without waiting for a kubelet.
func (c *Cluster) DeletePod(ctx context.Context, namespace, name string) error {
	return c.client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

// CreateNamespace creates a namespace and waits until pods can be created in it.
func (c *Cluster) CreateNamespace(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	return poll.Until(ctx, func() error {
		_, err := c.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// AwaitPod waits until ok returns true for a pod, and returns the pod.
func (c *Cluster) AwaitPod(ctx context.Context, namespace, name string, ok func(*corev1.Pod) bool) (*corev1.Pod, error) {
	var pod *corev1.Pod
	err := poll.Until(ctx, func() (err error) {
		pod, err = c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && !ok(pod) {
			err = fmt.Errorf("the pod is %s with annotations %v", pod.Status.Phase, pod.Annotations)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for pod %s/%s: %w", namespace, name, err)
	}
	return pod, nil
}

// ServiceAccountToken creates a token for a service account, valid for a day.
func (c *Cluster) ServiceAccountToken(ctx context.Context, namespace, name string) (string, error) {
	day := int64(24 * 3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}
	answer, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("making a token for %s/%s: %w", namespace, name, err)
	}
	return answer.Status.Token, nil
}

// Apply creates or updates the objects in manifests, which are YAML documents,
// as kubectl apply --server-side does.
func (c *Cluster) Apply(ctx context.Context, manifests []byte) error {
	groups, err := restmapper.GetAPIGroupResources(c.client.Discovery())
	if err != nil {
		return fmt.Errorf("asking for the API's resources: %w", err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	client, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096); ; {
		var object unstructured.Unstructured
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a manifest: %w", err)
		}
		if len(object.Object) == 0 {
			continue // only a comment
		}
		if err := apply(ctx, client, mapper, &object); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

func apply(ctx context.Context, client dynamic.Interface, mapper meta.RESTMapper, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	text, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	var target dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		target = client.Resource(mapping.Resource).Namespace(namespace)
	}
	force := true
	_, err = target.Patch(ctx, object.GetName(), types.ApplyPatchType, text,
		metav1.PatchOptions{FieldManager: "kubetest", Force: &force})
	return err
}
