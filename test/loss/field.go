package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

const (
	namespace = metav1.NamespaceDefault
	app       = "web"
	replicas  = 3
	preStop   = 5 // seconds
	patience  = 2 * time.Minute
)

// A field is a cluster of three nodes, the last one a gateway, with a Deployment behind a Service.
type field struct {
	options
	name    string
	w       *world.World
	clients map[string]world.Endpoint // by their nodes' names
	service world.Service
	gateway []netip.Addr
	history *history
	// translated has the connections translated by the nodes' kernels, by the nodes' names.
	translated map[string]*translated
	ports      ports
	preStop    time.Duration // of the Deployment's pods
}

func newField(ctx context.Context, name string, o options, steps func(string)) (f *field, err error) {
	o.say("%s: making a cluster", name)
	f = &field{options: o, name: name, clients: map[string]world.Endpoint{}, translated: map[string]*translated{}}
	options := world.Options{Log: steps}
	if o.evidence != "" {
		options.Dir = filepath.Join(o.evidence, name)
		if err := os.MkdirAll(options.Dir, 0o755); err != nil {
			return nil, err
		}
	}
	if f.w, err = world.New(ctx, options); err != nil {
		return nil, err
	}
	if err := f.setUp(ctx, o.bin); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// build builds the suite's programs into a directory of their own.
func build(ctx context.Context) (bin string, err error) {
	if bin, err = os.MkdirTemp("", "loss"); err != nil {
		return "", err
	}
	args := []string{"build", "-trimpath", "-o", bin + "/"}
	for _, p := range world.Programs() {
		args = append(args, "ovn-k8s/"+p)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return bin, fmt.Errorf("building the programs: %w: %s", err, out)
	}
	return bin, nil
}

func (f *field) setUp(ctx context.Context, bin string) (err error) {
	if err := f.w.Install(ctx, bin); err != nil {
		return err
	}
	if err := f.w.StartKubelets(ctx); err != nil {
		return err
	}
	if f.gateway, err = f.w.AddGateway(ctx, f.w.Nodes[2], world.Dedicated); err != nil {
		return err
	}
	for _, n := range f.w.Nodes {
		if f.set != "" {
			if err := n.VSCtl(ctx, "set", "Open_vSwitch", ".", "external_ids:"+f.set); err != nil {
				return err
			}
		}
		if f.clients[n.Name], err = f.client(ctx, n); err != nil {
			return err
		}
		if f.translated[n.Name], err = follow(n.Netns()); err != nil {
			return err
		}
	}
	f.history, err = watch(ctx, f.w)
	return err
}

// close ends the cluster.
func (f *field) close() {
	if f.history != nil {
		f.history.close()
	}
	for _, t := range f.translated {
		if t != nil {
			t.close()
		}
	}
	f.w.Close()
}

// client makes a client pod.
func (f *field) client(ctx context.Context, on *world.Node) (world.Endpoint, error) {
	name := "client-" + on.Name
	if _, err := f.w.Kube.CreatePod(ctx, namespace, name, on.Name, nil); err != nil {
		return world.Endpoint{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return f.w.AwaitPod(ctx, namespace, name)
}

// deploy makes the Deployment and its Service, and waits until all places get answers.
func (f *field) deploy(ctx context.Context, preStop int64) error {
	f.preStop = time.Duration(preStop) * time.Second
	labels := map[string]string{world.AppLabel: app}
	n, grace := int32(replicas), int64(30)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: &grace,
				Containers:                    []corev1.Container{{Name: "main", Image: "none"}},
			}},
		},
	}
	if preStop > 0 {
		d.Spec.Template.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: preStop}}}
	}
	_, err := f.w.Kube.Client().AppsV1().Deployments(namespace).Create(ctx, d, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	f.service, err = f.w.CreateService(ctx, app, kubelet.DefaultPort, 1, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := f.complete(ctx); err != nil {
		return err
	}
	return f.settle(ctx, f.places())
}

// settle waits until all places get answers, and no node has flows to change.
func (f *field) settle(ctx context.Context, places []place) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, p := range places {
		if _, err := (probe.Probe{Netns: p.netns, Network: "tcp", Address: p.to}).Until(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return f.flowed()
}

// complete waits until the Deployment matches its spec, without old pods.
func (f *field) complete(ctx context.Context) error {
	api := f.w.Kube.Client()
	for {
		d, err := api.AppsV1().Deployments(namespace).Get(ctx, app, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: world.AppLabel + "=" + app})
		if err != nil {
			return err
		}
		s := d.Status
		if s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == replicas && s.AvailableReplicas == replicas && len(pods.Items) == replicas {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the Deployment is not complete: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// places are the clients and destinations of connections: pods on each node by ClusterIP, and by the NodePort of
// another node; clients outside by the gateway's NodePort and by a node's.
func (f *field) places() (out []place) {
	for i, n := range f.w.Nodes {
		c, other := f.clients[n.Name], f.w.Nodes[(i+1)%len(f.w.Nodes)]
		for _, a := range f.service.ClusterIPs {
			out = append(out, place{"pod on " + n.Name + " by ClusterIP", c.Netns, probe.Address(a, world.ServicePort)})
		}
		out = append(out, place{"pod on " + n.Name + " by NodePort of " + other.Name, c.Netns, probe.Address(other.IPv4(), f.service.NodePorts["tcp"])})
	}
	outside := f.w.Outside.Netns()
	for _, a := range f.gateway {
		out = append(out, place{"outside by the gateway's NodePort", outside, probe.Address(a, f.service.NodePorts["tcp"])})
	}
	return append(out, place{"outside by a node's NodePort", outside, probe.Address(f.w.Nodes[1].IPv4(), f.service.NodePorts["tcp"])})
}
