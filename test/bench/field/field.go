// Package field is the environment of measured watchers.
package field

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

// A Field is the environment of watchers: a Kubernetes control plane, OVN's central half, and the rows and Nodes of
// a cluster. The nodes have no hosts.
type Field struct {
	Kube     *kubetest.Cluster
	Central  *ovntest.Central
	Observer *observer
	Client   *kubernetes.Clientset
	Northd   programs.Process
	Dir      string // for tokens and sockets
	Round    int    // part of the names of new pods
	cancel   context.CancelFunc
}

// NewField creates a field with a number of nodes, at most 1 024. The caller must close it.
func NewField(ctx context.Context, nodes int, say func(format string, args ...any)) (*Field, error) {
	ctx, cancel := context.WithCancel(ctx)
	f := &Field{cancel: cancel}
	if err := f.build(ctx, nodes, say); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *Field) build(ctx context.Context, nodes int, say func(format string, args ...any)) (err error) {
	if f.Dir, err = os.MkdirTemp(FastDir(), "field"); err != nil {
		return err
	}
	log := func(line string) { say("%s", line) }
	kubeDir := filepath.Join(f.Dir, "kube")
	if err := os.Mkdir(kubeDir, 0o755); err != nil {
		return err
	}
	f.Kube, err = kubetest.Start(ctx, kubetest.Options{Dir: kubeDir, Without: []string{"kube-scheduler"}, Unlimited: true, Log: log})
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.TokenFile(), []byte(f.Kube.Token), 0o600); err != nil {
		return err
	}
	if f.Central, err = ovntest.Start(ovntest.Options{Dir: filepath.Join(f.Dir, "ovn")}); err != nil {
		return err
	}
	f.Northd, err = programs.Find("ovn-northd", func(exe string, args []string) bool {
		for _, a := range args {
			if filepath.Base(exe) == "ovn-northd" && a == "--ovnnb-db="+f.Central.NB {
				return true
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	if f.Client, err = kubernetes.NewForConfig(f.config()); err != nil {
		return err
	}
	if err := f.populate(ctx, nodes); err != nil {
		return err
	}
	if f.Observer, err = observe(ctx, f.config(), f.Central.NB); err != nil {
		return err
	}
	say("a control plane, OVN with ovn-northd, and %d nodes", nodes)
	return f.Settle(ctx)
}

// memoryDir is a file system in memory.
const memoryDir = "/dev/shm"

// FastDir is the directory of both sides' databases: in memory, so that other writers of the disk have no
// influence. Without such a file system it is empty, for the default directory of temporary files.
func FastDir() string {
	if info, err := os.Stat(memoryDir); err != nil || !info.IsDir() {
		return ""
	}
	return memoryDir
}

// Close stops and removes everything.
func (f *Field) Close() {
	f.cancel()
	if f.Observer != nil {
		f.Observer.close()
	}
	if f.Central != nil {
		f.Central.Close()
	}
	if f.Kube != nil {
		f.Kube.Close()
	}
	_ = os.RemoveAll(f.Dir)
}

// TokenFile has the token of the watchers.
func (f *Field) TokenFile() string { return filepath.Join(f.Dir, "token") }

// config is the programs' fast configuration of a client of the API server.
func (f *Field) config() *rest.Config {
	c := f.Kube.Config()
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return c
}

// populate makes namespaces and Nodes, and the rows of master-init and minion-init.
func (f *Field) populate(ctx context.Context, nodes int) error {
	for _, ns := range Namespaces() {
		if err := f.Kube.CreateNamespace(ctx, ns); err != nil {
			return err
		}
	}
	c, err := topology.New(names.ClusterRouter, []netip.Prefix{netip.MustParsePrefix("10.128.0.0/14")}, []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")})
	if err != nil {
		return err
	}
	for i := range nodes {
		if c, err = c.WithNode(NodeName(i), []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + i>>8), byte(i), 0}), 24)}); err != nil {
			return err
		}
		if _, err := f.Kube.CreateNode(ctx, NodeName(i)); err != nil {
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
func (f *Field) apply(ctx context.Context, want map[nb.Unit][]nb.Row) error {
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
func (f *Field) open(ctx context.Context) (db *ovsdb.DB, err error) {
	err = Await(ctx, Patience, "the Northbound database", func() (err error) {
		db, err = northbound.Open(ctx, f.Central.NB)
		return err
	})
	return db, err
}

// Settle waits until ovn-northd has nothing to do, and compacts the database's file, so that this does not happen
// during a measurement.
func (f *Field) Settle(ctx context.Context) error {
	if err := Await(ctx, Patience, "ovn-northd", func() error { _, err := f.Central.NBCtl("--wait=sb", "--timeout=25", "sync"); return err }); err != nil {
		return err
	}
	for _, db := range []string{"nb", "sb"} {
		_, err := Appctl(filepath.Join(f.Central.Dir, "ovn"+db+"_db.ctl"), "ovsdb-server/compact")
		if err != nil {
			return err
		}
	}
	return nil
}

// Clear removes all pods and all their ports.
func (f *Field) Clear(ctx context.Context) error {
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
	return f.Settle(ctx)
}

// deletePods deletes all pods, one by one: the API server ends the deletion of a whole collection after a minute.
func (f *Field) deletePods(ctx context.Context) error {
	pods, err := f.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	g, deleting := errgroup.WithContext(ctx)
	g.SetLimit(creators)
	for _, p := range pods.Items {
		g.Go(func() error { return f.DeletePod(deleting, &p) })
	}
	return g.Wait()
}

// A Burst is the result of the creation of many pods.
type Burst struct {
	Sights []Sight
	Took   time.Duration // from the first create until the last pod was complete
}

// Create creates n pods as fast as possible, spread over the nodes, and returns when all have ports and
// annotations.
func (f *Field) Create(ctx context.Context, n int) (Burst, error) {
	f.Round++
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = NewPod(f.Round, i)
	}
	return f.CreatePods(ctx, pods)
}

// CreatePods creates pods, and returns when all have ports and annotations.
func (f *Field) CreatePods(ctx context.Context, pods []*corev1.Pod) (Burst, error) {
	n := len(pods)
	f.Observer.Expect(n)
	began := time.Now()
	err := Parallel(ctx, n, func(ctx context.Context, i int) error { return f.CreatePod(ctx, pods[i]) })
	if err != nil {
		return Burst{}, err
	}
	sights, err := f.Observer.Wait(ctx)
	if err != nil {
		return Burst{}, err
	}
	last := began
	for _, s := range sights {
		if s.Done().After(last) {
			last = s.Done()
		}
	}
	return Burst{sights, last.Sub(began)}, nil
}

// CreatePod creates a pod awaited by the observer.
func (f *Field) CreatePod(ctx context.Context, p *corev1.Pod) error {
	f.Observer.begin(names.PodPort(p.Namespace, p.Name))
	_, err := f.Client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
	return err
}

// DeletePod deletes a pod without grace, if it exists.
func (f *Field) DeletePod(ctx context.Context, p *corev1.Pod) error {
	err := f.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Milliseconds are the times between two sights of each pod.
func Milliseconds(sights []Sight, from, to func(*Sight) time.Time) []float64 {
	out := make([]float64, len(sights))
	for i := range sights {
		out[i] = float64(to(&sights[i]).Sub(from(&sights[i])).Microseconds()) / 1000
	}
	return out
}

// Appctl runs ovs-appctl.
func Appctl(target string, args ...string) (string, error) {
	out, err := exec.Command("ovs-appctl", append([]string{"--timeout=60", "-t", target}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ovs-appctl %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

// Await polls a condition without an event.
func Await(ctx context.Context, limit time.Duration, what string, try func() error) error {
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
