package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/test/bench/field"
	"ovn-k8s/test/bench/programs"
	"ovn-k8s/test/bench/run"
)

// The largest cluster: each node with a namespace of as many objects.
const (
	fullNodes    = 1000
	fullPods     = 100
	fullServices = 10
	fullPolicies = 2
)

// fullPatience bounds each wait of the figure.
const fullPatience = 30 * time.Minute

// measureFull measures the memory and the start of a watcher process in the largest cluster. It has a field of its
// own. ovn-northd is stopped while pods are created: it would compute for most of an hour.
func measureFull(ctx context.Context, b *run.Bench) error {
	b.CloseField()
	f, err := field.NewField(ctx, fullNodes, b.Say)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := f.Start(ctx, b.Contenders()[0])
	if err != nil {
		return err
	}
	defer func() { r.Stop() }()
	if err := fillFull(ctx, b, f); err != nil {
		return r.Failed(err)
	}
	peak, err := r.Peak()
	if err != nil {
		return err
	}
	settled, err := settledMemory(ctx, b, r)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%d nodes, %d pods, %d Services, %d policies: ", fullNodes, fullNodes*fullPods, fullNodes*fullServices, fullNodes*fullPolicies)
	b.Report.Alone(name+"watcher memory", "MB", 900, settled).Explain("VmRSS, settled; at most %.0f MB while all objects were created", peak)
	return restartFull(ctx, b, f, r, name)
}

// fillFull creates all objects and waits until the watcher has written them.
func fillFull(ctx context.Context, b *run.Bench, f *field.Field) error {
	if err := field.Parallel(ctx, fullNodes, func(ctx context.Context, i int) error { return fullNamespace(ctx, f, i) }); err != nil {
		return err
	}
	if err := awaitWritten(ctx, f); err != nil {
		return err
	}
	if err := syscall.Kill(int(f.Northd), syscall.SIGSTOP); err != nil {
		return err
	}
	b.Say("full: Services and policies are written; now %d pods", fullNodes*fullPods)
	const step = 10000
	for first := 0; first < fullNodes*fullPods; first += step {
		if err := field.Parallel(ctx, step, func(ctx context.Context, i int) error { return createFullPod(ctx, f, first+i) }); err != nil {
			return err
		}
		b.Say("full: %d pods created", first+step)
	}
	if err := awaitPorts(ctx, f, fullNodes*fullPods); err != nil {
		return err
	}
	return awaitWritten(ctx, f)
}

// awaitPorts waits until a number of pods have ports. The watcher's queue is empty before, if the API server is behind.
func awaitPorts(ctx context.Context, f *field.Field, pods int) error {
	ctx, cancel := context.WithTimeout(ctx, fullPatience)
	defer cancel()
	db, err := f.Follow(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Await(ctx, "the ports of all pods", func() bool {
		return field.Count(db, nbdb.LogicalSwitchPortTable, func(p *nbdb.LogicalSwitchPort) bool { return p.ExternalIDs["pod"] == "true" }) >= pods
	})
}

// awaitWritten waits until the watcher has nothing to write.
func awaitWritten(ctx context.Context, f *field.Field) error {
	return field.Await(ctx, fullPatience, "the watcher", func() error {
		q, err := f.Queue()
		if waiting := q["events waiting"] + q["units waiting"] + q["units in work"] + q["units pending"]; err == nil && waiting > 0 {
			err = fmt.Errorf("%d units and events wait", waiting)
		}
		return err
	})
}

// restartFull kills the watcher and measures the next one.
func restartFull(ctx context.Context, b *run.Bench, f *field.Field, r *field.Runner, name string) error {
	r.Stop()
	before, err := f.Central.NBTransactions()
	if err != nil {
		return err
	}
	server, err := programs.Find("the control plane", func(exe string, args []string) bool {
		return filepath.Base(exe) == "kcluster" && strings.Contains(strings.Join(args, " "), f.Dir)
	})
	if err != nil {
		return err
	}
	idle, err := server.CPU()
	if err != nil {
		return err
	}
	began := time.Now()
	err = startAgain(ctx, f, r, fullPod(fullNodes*fullPods-1), fullPatience)
	if err == nil {
		err = awaitWritten(ctx, f)
	}
	if err != nil {
		return r.Failed(err)
	}
	took := time.Since(began).Seconds()
	after, err := f.Central.NBTransactions()
	if err != nil {
		return err
	}
	peak, err := r.Peak()
	if err != nil {
		return err
	}
	own, err := r.CPU()
	if err != nil {
		return err
	}
	busy, err := server.CPU()
	if err != nil {
		return err
	}
	b.Report.Alone(name+"restart until all is compared", "s", 15, took).Explain("from starting the process; CPU: %.1f s its own, %.1f s the control plane's", own.Seconds(), (busy - idle).Seconds())
	b.Report.Alone(name+"NB transactions of a restart", "", 1, float64(after-before)).Explain("the leader's term")
	b.Report.Alone(name+"watcher memory during a restart", "MB", 0, peak).Explain("VmHWM")
	return nil
}

// fullName is the name of the namespace of a node.
func fullName(i int) string { return fmt.Sprintf("tenant-%03d", i) }

// fullNamespace creates a namespace with its Services and policies.
func fullNamespace(ctx context.Context, f *field.Field, i int) error {
	if err := f.Kube.CreateNamespace(ctx, fullName(i)); err != nil {
		return err
	}
	for n := range fullServices {
		s := newService(n, i)
		s.Namespace = fullName(i)
		if _, err := f.Client.CoreV1().Services(s.Namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
			return err
		}
		if _, err := f.Client.DiscoveryV1().EndpointSlices(s.Namespace).Create(ctx, fullSlice(s, i, n), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for n := range fullPolicies {
		if _, err := f.Client.NetworkingV1().NetworkPolicies(fullName(i)).Create(ctx, fullPolicy(i, n), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// fullSlice makes the endpoints of Service n of namespace i, on ten nodes.
func fullSlice(s *corev1.Service, i, n int) *discoveryv1.EndpointSlice {
	slice := newSlice(s, 0, 0)
	for e := range slice.Endpoints {
		node := (i + e) % fullNodes
		on := field.NodeName(node)
		slice.Endpoints[e].NodeName = &on
		slice.Endpoints[e].Addresses = []string{fmt.Sprintf("10.%d.%d.%d", 128+node>>8, node%256, 2+fullServices*e+n)}
	}
	return slice
}

// fullPolicy makes policy n of namespace i.
func fullPolicy(i, n int) *networkingv1.NetworkPolicy {
	p := newPolicy(0, n)
	p.Namespace = fullName(i)
	return p
}

// fullPod makes pod i: pod i/fullNodes of a namespace, on its node.
func fullPod(i int) *corev1.Pod {
	p := groupedPod(1, i)
	p.Namespace, p.Spec.NodeName = fullName(i%fullNodes), field.NodeName(i%fullNodes)
	p.Labels[groupLabel] = fmt.Sprint(i / fullNodes % groups)
	return p
}

// createFullPod creates pod i. A busy API server may answer that its time is over, and have created the pod or not.
func createFullPod(ctx context.Context, f *field.Field, i int) error {
	p := fullPod(i)
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsTimeout, func() error {
		_, err := f.Client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		return err
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
