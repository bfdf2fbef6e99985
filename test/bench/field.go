package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/test/bench/programs"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/northbound"
	"ovn-k8s/test/ovntest"
)

// pollInterval is the time between polls of a condition.
const pollInterval = 20 * time.Millisecond

// creators is the number of pods created at once.
const creators = 32

// A field is the environment of watchers: a Kubernetes control plane, OVN's central half, and the rows and Nodes of
// a cluster of 100 nodes. The nodes have no hosts.
type field struct {
	kube     *kubetest.Cluster
	central  *ovntest.Central
	observer *observer
	client   *kubernetes.Clientset
	northd   programs.Process
	dir      string // for tokens and sockets
	round    int    // part of the names of new pods
	cancel   context.CancelFunc
}

func newField(ctx context.Context, say sayer) (*field, error) {
	ctx, cancel := context.WithCancel(ctx)
	f := &field{cancel: cancel}
	if err := f.build(ctx, say); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *field) build(ctx context.Context, say sayer) (err error) {
	if f.dir, err = os.MkdirTemp(fastDir(), "field"); err != nil {
		return err
	}
	log := func(line string) { say("%s", line) }
	kubeDir := filepath.Join(f.dir, "kube")
	if err := os.Mkdir(kubeDir, 0o755); err != nil {
		return err
	}
	f.kube, err = kubetest.Start(ctx, kubetest.Options{Dir: kubeDir, Without: []string{"kube-scheduler"}, Unlimited: true, Log: log})
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.tokenFile(), []byte(f.kube.Token), 0o600); err != nil {
		return err
	}
	if f.central, err = ovntest.Start(ovntest.Options{Dir: filepath.Join(f.dir, "ovn")}); err != nil {
		return err
	}
	f.northd, err = programs.Find("ovn-northd", func(exe string, args []string) bool {
		for _, a := range args {
			if filepath.Base(exe) == "ovn-northd" && a == "--ovnnb-db="+f.central.NB {
				return true
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	if f.client, err = kubernetes.NewForConfig(f.config()); err != nil {
		return err
	}
	if err := f.populate(ctx); err != nil {
		return err
	}
	if f.observer, err = observe(ctx, f.config(), f.central.NB); err != nil {
		return err
	}
	say("a control plane, OVN with ovn-northd, and %d nodes", nodes)
	return f.settle(ctx)
}

// memoryDir is a file system in memory.
const memoryDir = "/dev/shm"

// fastDir is the directory of both sides' databases: in memory, so that other writers of the disk have no
// influence. Without such a file system it is empty, for the default directory of temporary files.
func fastDir() string {
	if info, err := os.Stat(memoryDir); err != nil || !info.IsDir() {
		return ""
	}
	return memoryDir
}

func (f *field) close() {
	f.cancel()
	if f.observer != nil {
		f.observer.close()
	}
	if f.central != nil {
		f.central.Close()
	}
	if f.kube != nil {
		f.kube.Close()
	}
	_ = os.RemoveAll(f.dir)
}

func (f *field) tokenFile() string { return filepath.Join(f.dir, "token") }

// config is the programs' fast configuration of a client of the API server.
func (f *field) config() *rest.Config {
	c := f.kube.Config()
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return c
}

// populate makes namespaces and Nodes, and the rows of master-init and minion-init.
func (f *field) populate(ctx context.Context) error {
	for _, ns := range namespaces() {
		if err := f.kube.CreateNamespace(ctx, ns); err != nil {
			return err
		}
	}
	c, err := topology.New(names.ClusterRouter, []netip.Prefix{netip.MustParsePrefix("10.128.0.0/14")}, []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")})
	if err != nil {
		return err
	}
	for i := range nodes {
		if c, err = c.WithNode(nodeName(i), []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128, byte(i), 0}), 24)}); err != nil {
			return err
		}
		if _, err := f.kube.CreateNode(ctx, nodeName(i)); err != nil {
			return err
		}
	}
	want := map[nb.Unit][]nb.Row{topology.ClusterUnit: c.Rows()}
	for _, n := range c.NodeNames() {
		want[topology.NodeUnit(n)] = c.NodeRows(n)
	}
	return f.apply(ctx, want)
}

// apply writes rows as the commands do.
func (f *field) apply(ctx context.Context, want map[nb.Unit][]nb.Row) error {
	db, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	_, failed := (&nbsync.Sync{DB: db}).Apply(ctx, want)
	for u, err := range failed {
		return fmt.Errorf("writing %s: %w", u, err)
	}
	return nil
}

// open connects to the Northbound database. While many pods are deleted, the database may be silent for longer than
// a connection waits.
func (f *field) open(ctx context.Context) (db *ovsdb.DB, err error) {
	err = await(ctx, patience, "the Northbound database", func() (err error) {
		db, err = northbound.Open(ctx, f.central.NB)
		return err
	})
	return db, err
}

// settle waits until ovn-northd has nothing to do, and compacts the database's file, so that this does not happen
// during a measurement.
func (f *field) settle(ctx context.Context) error {
	if err := await(ctx, patience, "ovn-northd", func() error { _, err := f.central.NBCtl("--wait=sb", "--timeout=25", "sync"); return err }); err != nil {
		return err
	}
	for _, db := range []string{"nb", "sb"} {
		_, err := appctl(filepath.Join(f.central.Dir, "ovn"+db+"_db.ctl"), "ovsdb-server/compact")
		if err != nil {
			return err
		}
	}
	return nil
}

// clear removes all pods and all their ports.
func (f *field) clear(ctx context.Context) error {
	if err := f.deletePods(ctx); err != nil {
		return err
	}
	db, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	sync := &nbsync.Sync{DB: db}
	owners, err := sync.Owners()
	if err != nil {
		return err
	}
	want := map[nb.Unit][]nb.Row{}
	for _, u := range owners {
		if _, ok := pod.KeyOf(u); ok {
			want[u] = nil
		}
	}
	_, failed := sync.Apply(ctx, want)
	for u, err := range failed {
		return fmt.Errorf("removing %s: %w", u, err)
	}
	return f.settle(ctx)
}

// deletePods deletes all pods, one by one: the API server ends the deletion of a whole collection after a minute.
func (f *field) deletePods(ctx context.Context) error {
	pods, err := f.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	g, deleting := errgroup.WithContext(ctx)
	g.SetLimit(creators)
	for _, p := range pods.Items {
		g.Go(func() error { return f.deletePod(deleting, &p) })
	}
	return g.Wait()
}

// A burst is the result of the creation of many pods.
type burst struct {
	sights []sight
	took   time.Duration // from the first create until the last pod was complete
}

// create creates n pods as fast as possible, spread over the nodes, and returns when all have ports and
// annotations.
func (f *field) create(ctx context.Context, n int) (burst, error) {
	f.round++
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = newPod(f.round, i)
	}
	return f.createPods(ctx, pods)
}

// createGrouped is create for pods in the groups of policies.
func (f *field) createGrouped(ctx context.Context, n int) (burst, error) {
	f.round++
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = groupedPod(f.round, i)
	}
	return f.createPods(ctx, pods)
}

// createPods creates pods, and returns when all have ports and annotations.
func (f *field) createPods(ctx context.Context, pods []*corev1.Pod) (burst, error) {
	n := len(pods)
	f.observer.expect(n)
	began := time.Now()
	err := parallel(ctx, n, func(ctx context.Context, i int) error { return f.createPod(ctx, pods[i]) })
	if err != nil {
		return burst{}, err
	}
	sights, err := f.observer.wait(ctx)
	if err != nil {
		return burst{}, err
	}
	last := began
	for _, s := range sights {
		if s.done().After(last) {
			last = s.done()
		}
	}
	return burst{sights, last.Sub(began)}, nil
}

// createPod creates a pod awaited by the observer.
func (f *field) createPod(ctx context.Context, p *corev1.Pod) error {
	f.observer.begin(names.PodPort(p.Namespace, p.Name))
	_, err := f.client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
	return err
}

// deletePod deletes a pod without grace, if it exists.
func (f *field) deletePod(ctx context.Context, p *corev1.Pod) error {
	err := f.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// milliseconds are the times between two sights of each pod.
func milliseconds(sights []sight, from, to func(*sight) time.Time) []float64 {
	out := make([]float64, len(sights))
	for i := range sights {
		out[i] = float64(to(&sights[i]).Sub(from(&sights[i])).Microseconds()) / 1000
	}
	return out
}

// appctl runs ovs-appctl.
func appctl(target string, args ...string) (string, error) {
	out, err := exec.Command("ovs-appctl", append([]string{"--timeout=60", "-t", target}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ovs-appctl %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

// await polls a condition without an event.
func await(ctx context.Context, limit time.Duration, what string, try func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(pollInterval) {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("waiting for %s: %w", what, errors.Join(err, context.Cause(ctx)))
		}
	}
}
