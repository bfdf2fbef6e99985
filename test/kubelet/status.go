package kubelet

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/limit"
)

// register creates the Node, or adopts an existing one.
func (k *Kubelet) register(ctx context.Context) error {
	node := k.describe()
	nodes := k.opts.Client.CoreV1().Nodes()
	_, err := nodes.Create(ctx, node, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return k.patchNode(ctx, node)
}

// describe returns the Node in its current state.
func (k *Kubelet) describe() *corev1.Node {
	var addrs []netip.Addr
	for _, a := range k.opts.Host.Addresses {
		addrs = append(addrs, a.Addr())
	}
	node := kubetest.Node(k.node, addrs...)
	if _, err := k.cni.config(); err != nil {
		ready := &node.Status.Conditions[0]
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "KubeletNotReady", err.Error()
	}
	return node
}

func (k *Kubelet) patchNode(ctx context.Context, node *corev1.Node) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"conditions": node.Status.Conditions, "addresses": node.Status.Addresses,
		"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable,
	}})
	if err != nil {
		return err
	}
	_, err = k.opts.Client.CoreV1().Nodes().Patch(ctx, k.node, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// watchReadiness updates the Node when a network configuration appears or
// disappears. Without one the node is not ready, as with the real kubelet.
func (k *Kubelet) watchReadiness(ctx context.Context) {
	tick := time.NewTicker(limit.Of(readyInterval))
	defer tick.Stop()
	var reported *corev1.Node
	for {
		node := k.describe()
		if reported == nil || !equality.Semantic.DeepEqual(reported.Status.Conditions, node.Status.Conditions) {
			switch err := k.patchNode(ctx, node); {
			case err == nil:
				reported = node
			case ctx.Err() == nil:
				k.opts.Log("reporting node %s: %v", k.node, err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// reportRunning writes the status of a running pod if it has changed.
func (k *Kubelet) reportRunning(ctx context.Context, pod *corev1.Pod, s *Sandbox) error {
	status := pod.Status.DeepCopy()
	status.Phase = corev1.PodRunning
	status.PodIP, status.PodIPs = "", nil
	for _, a := range s.Addresses {
		status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	if len(status.PodIPs) > 0 {
		status.PodIP = status.PodIPs[0].IP
	}
	status.HostIP, status.HostIPs = "", nil
	for _, a := range k.opts.Host.Addresses {
		status.HostIPs = append(status.HostIPs, corev1.HostIP{IP: a.Addr().String()})
	}
	if len(status.HostIPs) > 0 {
		status.HostIP = status.HostIPs[0].IP
	}
	if status.StartTime == nil {
		now := metav1.Now()
		status.StartTime = &now
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady,
	} {
		setCondition(status, kind, corev1.ConditionTrue)
	}
	setCondition(status, corev1.PodReady, ready(pod))
	status.ContainerStatuses = containerStatuses(pod, corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: *status.StartTime},
	})
	return k.writeStatus(ctx, pod, status)
}

// ready is true if the conditions of all readiness gates of a pod are true.
func ready(pod *corev1.Pod) corev1.ConditionStatus {
	for _, gate := range pod.Spec.ReadinessGates {
		if !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
		}) {
			return corev1.ConditionFalse
		}
	}
	return corev1.ConditionTrue
}

// finishDeletion reports the end of a deleted pod and then deletes the object, as
// the kubelet does after the containers have ended.
func (k *Kubelet) finishDeletion(ctx context.Context, pod *corev1.Pod) error {
	status := pod.Status.DeepCopy()
	if !finished(pod) && pod.Status.Phase != corev1.PodPending {
		status.Phase = corev1.PodSucceeded
		status.ContainerStatuses = containerStatuses(pod, corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"},
		})
	}
	setCondition(status, corev1.ContainersReady, corev1.ConditionFalse)
	setCondition(status, corev1.PodReady, corev1.ConditionFalse)
	if err := k.writeStatus(ctx, pod, status); err != nil {
		return err
	}
	err := k.opts.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64),
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // deleted, or the name belongs to another pod now
		return nil
	}
	return err
}

// writeStatus patches the differences. The UID in the patch makes it fail on
// another pod of the same name.
func (k *Kubelet) writeStatus(ctx context.Context, pod *corev1.Pod, status *corev1.PodStatus) error {
	if equality.Semantic.DeepEqual(&pod.Status, status) {
		return nil
	}
	before, err := json.Marshal(&corev1.Pod{Status: pod.Status})
	if err != nil {
		return err
	}
	after, err := json.Marshal(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: *status})
	if err != nil {
		return err
	}
	// only a two-way patch removes addresses
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return err
	}
	_, err = k.opts.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func setCondition(status *corev1.PodStatus, kind corev1.PodConditionType, value corev1.ConditionStatus) {
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if c.Type != kind {
			continue
		}
		if c.Status != value {
			c.Status, c.LastTransitionTime = value, metav1.Now()
		}
		return
	}
	status.Conditions = append(status.Conditions, corev1.PodCondition{
		Type: kind, Status: value, LastTransitionTime: metav1.Now(),
	})
}

func containerStatuses(pod *corev1.Pod, state corev1.ContainerState) []corev1.ContainerStatus {
	running := state.Running != nil
	var all []corev1.ContainerStatus
	for _, c := range pod.Spec.Containers {
		all = append(all, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, State: state, Ready: running, Started: &running,
		})
	}
	return all
}
