// Minimal is the yardstick of the benchmark: the least that a program can do to
// give pods ports and annotations. It follows pods with an informer, patches the
// annotation with as many requests at once as it likes, and inserts the same
// rows as the product in batches of the waiting ones.
//
// It does it well, but only while nothing goes wrong: it gives out addresses by
// counting, never reads its own rows, and knows no restart, deletion,
// refusal, second program, or lost connection.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/pod/annotation"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb/nbdb"
)

// patchers is how many annotations are written at once, as in the product.
const patchers = 64

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "minimal: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("minimal", flag.ContinueOnError)
	nb := flags.String("nb", "", "`socket` of the Northbound database")
	server := flags.String("server", "", "`URL` of the API server")
	token := flags.String("token-file", "", "`file` with the bearer token")
	ca := flags.String("ca", "", "`file` with the API server's CA certificate")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config := &rest.Config{
		Host: *server, BearerTokenFile: *token, TLSClientConfig: rest.TLSClientConfig{CAFile: *ca}, QPS: -1,
		ContentConfig: rest.ContentConfig{
			ContentType:        "application/vnd.kubernetes.protobuf",
			AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
		},
	}
	db, err := connect(ctx, "unix:"+*nb)
	if err != nil {
		return err
	}
	defer db.Close()
	nodes, err := readNodes(ctx, db)
	if err != nil {
		return err
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	m := &minimal{db: db, meta: meta, nodes: nodes, seen: map[types.UID]bool{}, patches: make(chan assigned, 1<<16), rows: make(chan assigned, 1<<16)}
	return m.run(ctx, config)
}

// connect follows the program's part of the database: the nodes' switches
// without their ports.
func connect(ctx context.Context, endpoint string) (client.Client, error) {
	m, err := model.NewClientDBModel("OVN_Northbound", map[string]model.Model{
		nbdb.LogicalSwitchTable: &nbdb.LogicalSwitch{}, nbdb.LogicalSwitchPortTable: &nbdb.LogicalSwitchPort{},
	})
	if err != nil {
		return nil, err
	}
	db, err := client.NewOVSDBClient(m, client.WithEndpoint(endpoint))
	if err != nil {
		return nil, err
	}
	if err := db.Connect(ctx); err != nil {
		return nil, err
	}
	s := &nbdb.LogicalSwitch{}
	_, err = db.Monitor(ctx, db.NewMonitor(client.WithTable(s, &s.Name, &s.OtherConfig)))
	return db, err
}

// A node is a switch whose addresses are given out from the first to the last.
type node struct {
	uuid   string
	subnet netip.Prefix
	next   uint64
}

func readNodes(ctx context.Context, db client.Client) (map[string]*node, error) {
	var switches []*nbdb.LogicalSwitch
	if err := db.List(ctx, &switches); err != nil {
		return nil, err
	}
	nodes := map[string]*node{}
	for _, s := range switches {
		text, ok := s.OtherConfig["subnet"]
		if !ok {
			continue // the join switch
		}
		subnet, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("switch %s: %w", s.Name, err)
		}
		nodes[s.Name] = &node{s.UUID, subnet, pod.FirstHost}
	}
	return nodes, nil
}

// An assigned is a pod with its addresses.
type assigned struct {
	pod.Pod
	addrs annotation.Addresses
	node  *node
}

type minimal struct {
	db    client.Client
	meta  metadata.Interface
	nodes map[string]*node
	seen  map[types.UID]bool
	// Both hold more than any run of the benchmark has pods.
	patches, rows chan assigned
}

// run works until ctx ends or something goes wrong.
func (m *minimal) run(ctx context.Context, config *rest.Config) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	work := func(f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				fail(err)
			}
		})
	}
	for range patchers {
		work(m.patch)
	}
	work(m.insert)
	factory := informers.NewSharedInformerFactory(clients, 0)
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { m.assign(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { m.assign(o.(*corev1.Pod)) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	fail(nil)
	factory.Shutdown()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// assign gives a pod its addresses. It is called by the informer, one pod at a
// time.
func (m *minimal) assign(o *corev1.Pod) {
	p := pod.New(o)
	n := m.nodes[names.NodeSwitch(p.Node)]
	if n == nil || !p.NeedsPort || m.seen[o.UID] {
		return
	}
	m.seen[o.UID] = true
	ip, ok := ipnet.Nth(n.subnet, n.next)
	if !ok {
		return
	}
	n.next++
	a := assigned{p, annotation.Addresses{
		MAC:      ipnet.PodMAC(ip),
		IPs:      []netip.Prefix{netip.PrefixFrom(ip, n.subnet.Bits())},
		Gateways: topology.PodGateways([]netip.Prefix{n.subnet}),
	}, n}
	m.patches <- a
	m.rows <- a
}

// patch writes annotations.
func (m *minimal) patch(ctx context.Context) error {
	pods := m.meta.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	for {
		select {
		case <-ctx.Done():
			return nil
		case a := <-m.patches:
			text, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{names.Annotation: a.addrs.Annotation()}}})
			if err != nil {
				return err
			}
			if _, err := pods.Namespace(a.Namespace).Patch(ctx, a.Name, types.MergePatchType, text, metav1.PatchOptions{}, "status"); err != nil {
				return err
			}
		}
	}
}

// insert writes rows: all that wait in one transaction, then the next.
func (m *minimal) insert(ctx context.Context) error {
	for {
		var batch []assigned
		select {
		case <-ctx.Done():
			return nil
		case a := <-m.rows:
			batch = append(batch, a)
		}
		for more := true; more; {
			select {
			case a := <-m.rows:
				batch = append(batch, a)
			default:
				more = false
			}
		}
		if err := m.commit(ctx, batch); err != nil {
			return err
		}
	}
}

// commit inserts ports, and puts those of a switch into it by one operation.
func (m *minimal) commit(ctx context.Context, batch []assigned) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var ops []ovsdb.Operation
	ports := map[*node][]string{}
	for i, a := range batch {
		row := pod.Rows(a.Pod, a.addrs)[0]
		port := row.Model.(*nbdb.LogicalSwitchPort)
		port.UUID = fmt.Sprint("port", i)
		port.ExternalIDs[names.Owner], port.ExternalIDs[names.ID] = string(a.Unit()), row.ID
		more, err := m.db.Create(port)
		if err != nil {
			return err
		}
		ops = append(ops, more...)
		ports[a.node] = append(ports[a.node], port.UUID)
	}
	for n, uuids := range ports {
		s := &nbdb.LogicalSwitch{UUID: n.uuid}
		more, err := m.db.Where(s).Mutate(s, model.Mutation{Field: &s.Ports, Mutator: ovsdb.MutateOperationInsert, Value: uuids})
		if err != nil {
			return err
		}
		ops = append(ops, more...)
	}
	results, err := m.db.Transact(ctx, ops...)
	if err != nil {
		return err
	}
	_, err = ovsdb.CheckOperationResults(results, ops)
	return err
}
