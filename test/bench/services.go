package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/test/bench/field"
	"ovn-k8s/test/bench/report"
	"ovn-k8s/test/bench/run"
)

const (
	// manyServices of endpointsEach are created at once.
	manyServices  = 500
	endpointsEach = 10
	// endpointChanges is the number of changes of one endpoint, one at a time.
	endpointChanges = 200
	// changePause is the time between them.
	changePause = 30 * time.Millisecond
)

// newService makes Service i without a selector: the benchmark sets its endpoints.
func newService(round, i int) *corev1.Service {
	spaces := field.Namespaces()
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: spaces[i%len(spaces)], Name: fmt.Sprintf("service-%d-%d", round, i)},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
}

// newSlice makes the ten endpoints of a Service; the last one is on node last.
func newSlice(s *corev1.Service, i, last int) *discoveryv1.EndpointSlice {
	name, port, ready := "http", int32(8080), true
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for e := range endpointsEach {
		node := (i + e) % field.Nodes
		if e == endpointsEach-1 {
			node = last
		}
		on := field.NodeName(node)
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.128.%d.%d", node, 10+i%200)},
			NodeName:   &on,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return slice
}

// measureServices creates many Services, and then changes endpoints one by one.
func measureServices(ctx context.Context, b *run.Bench) error {
	f, err := b.Ground(ctx)
	if err != nil {
		return err
	}
	var ours, yardstick endpointTimes
	c := &batch{
		what: fmt.Sprintf("%d services of %d endpoints", manyServices, endpointsEach), last: "row", n: manyServices,
		create: createService, remove: removeService, leftover: leftoverServices,
		ready: func(db *field.Replica) int { return field.Count(db, nbdb.LoadBalancerTable, complete) },
		copied: func(db *field.Replica) func(context.Context) error {
			made := field.RowsOf(db, nbdb.LoadBalancerTable, complete)
			return func(ctx context.Context) error { return insertServices(ctx, db, made) }
		},
		meanwhile: func(ctx context.Context, f *field.Field, db *field.Replica, watcher string, round int) error {
			return map[string]*endpointTimes{"ours": &ours, "yardstick": &yardstick}[watcher].measure(ctx, func(i int) error {
				return moveEndpoint(ctx, f, db, round, i)
			})
		},
		alone: func(ctx context.Context, f *field.Field, db *field.Replica, round int) error {
			return yardstick.measure(ctx, func(i int) error { return moveEndpointAlone(ctx, f, db, round, i) })
		},
	}
	if err := c.measure(ctx, b, f); err != nil {
		return err
	}
	name := "one endpoint changes: API call to row, "
	b.Report.Beside(name+"p50", "ms", 0, ours.p50, yardstick.p50).Explain("yardstick without -beside: the API call, and then the row's transaction")
	b.Report.Beside(name+"p99", "ms", 0, ours.p99, yardstick.p99)
	return nil
}

// createService creates a Service and its endpoints.
func createService(ctx context.Context, f *field.Field, round, i int) error {
	s := newService(round, i)
	if _, err := f.Client.CoreV1().Services(s.Namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := f.Client.DiscoveryV1().EndpointSlices(s.Namespace).Create(ctx, newSlice(s, i, (i+endpointsEach-1)%field.Nodes), metav1.CreateOptions{})
	return err
}

func removeService(ctx context.Context, f *field.Field, round, i int) error {
	s := newService(round, i)
	if err := f.Client.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return f.Client.DiscoveryV1().EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{})
}

// complete reports whether a load balancer of ours has all endpoints.
func complete(lb *nbdb.LoadBalancer) bool {
	for _, backends := range lb.Vips {
		if strings.Count(backends, ",") == endpointsEach-1 && strings.HasPrefix(lb.ExternalIDs[names.ID], "service/") {
			return true
		}
	}
	return false
}

// endpointTimes are the durations of changes of one endpoint in milliseconds, by round.
type endpointTimes struct{ p50, p99 []float64 }

// measure makes changes one at a time.
func (t *endpointTimes) measure(ctx context.Context, change func(i int) error) error {
	var each []float64
	for i := range endpointChanges {
		seconds, err := field.Timed(func() error { return change(i) })
		if err != nil {
			return err
		}
		each = append(each, seconds*1000)
		if err := field.Pause(ctx, changePause); err != nil {
			return err
		}
	}
	t.p50, t.p99 = append(t.p50, report.Median(each)), append(t.p99, report.Percentile(each, 99))
	return nil
}

// moveEndpoint moves an endpoint of one Service to another node, and returns when the row has the change.
func moveEndpoint(ctx context.Context, f *field.Field, db *field.Replica, round, i int) error {
	address, err := moveObject(ctx, f, round, i)
	if err != nil {
		return err
	}
	return db.Await(ctx, "a changed endpoint", func() bool {
		return field.Count(db, nbdb.LoadBalancerTable, func(lb *nbdb.LoadBalancer) bool {
			return lb.ExternalIDs[names.ID] == rowOf(newService(round, 0)) && strings.Contains(fmt.Sprint(lb.Vips), address)
		}) == 1
	})
}

// moveObject moves an endpoint in the API, and returns its new address as in a row.
func moveObject(ctx context.Context, f *field.Field, round, i int) (string, error) {
	slice := newSlice(newService(round, 0), 0, 20+i%50)
	_, err := f.Client.DiscoveryV1().EndpointSlices(slice.Namespace).Update(ctx, slice, metav1.UpdateOptions{})
	return slice.Endpoints[endpointsEach-1].Addresses[0] + ":", err
}

// rowOf is the identity of the row of a Service, its ovn-k8s-id.
func rowOf(s *corev1.Service) string { return "service/" + s.Namespace + "/" + s.Name + "/tcp" }

// moveEndpointAlone does the inevitable part of moving an endpoint: the API call, and a transaction of the row.
func moveEndpointAlone(ctx context.Context, f *field.Field, db *field.Replica, round, i int) error {
	address, err := moveObject(ctx, f, round, i)
	if err != nil {
		return err
	}
	// The rows are copies from the round before.
	id := rowOf(newService(round-1, 0))
	lb := field.RowsOf(db, nbdb.LoadBalancerTable, func(lb *nbdb.LoadBalancer) bool { return lb.ExternalIDs[names.ID] == id })[0]
	for vip, backends := range lb.Vips {
		lb.Vips[vip] = backends[:strings.LastIndexByte(backends, ',')+1] + address + "8080"
	}
	ops, err := db.Client().Where(lb).Update(lb, &lb.Vips)
	if err != nil {
		return err
	}
	_, err = db.Transact(ctx, ops)
	return err
}

// insertServices inserts load balancers like the given ones, and puts them into the same group.
func insertServices(ctx context.Context, db *field.Replica, made []*nbdb.LoadBalancer) error {
	group := field.RowsOf(db, nbdb.LoadBalancerGroupTable, func(g *nbdb.LoadBalancerGroup) bool { return g.Name == names.LoadBalancerGroup })
	return field.Insert(ctx, db, made, func(i int, lb *nbdb.LoadBalancer) ([]ovsdb.Operation, error) {
		lb.UUID = fmt.Sprintf("lb%d", i)
		ops, err := db.Client().Create(lb)
		if err != nil {
			return nil, err
		}
		put, err := db.Client().Where(group[0]).Mutate(group[0], model.Mutation{Field: &group[0].LoadBalancer, Mutator: ovsdb.MutateOperationInsert, Value: []string{lb.UUID}})
		return append(ops, put...), err
	})
}

// leftoverServices are the operations to remove the rows of insertServices.
func leftoverServices(db *field.Replica) (ops []ovsdb.Operation, err error) {
	for _, g := range field.RowsOf(db, nbdb.LoadBalancerGroupTable, func(g *nbdb.LoadBalancerGroup) bool { return len(g.LoadBalancer) > 0 }) {
		g.LoadBalancer = nil
		more, err := db.Client().Where(g).Update(g, &g.LoadBalancer)
		if err != nil {
			return nil, err
		}
		ops = append(ops, more...)
	}
	for _, lb := range field.RowsOf(db, nbdb.LoadBalancerTable, complete) {
		more, err := db.Client().Where(lb).Delete()
		if err != nil {
			return nil, err
		}
		ops = append(ops, more...)
	}
	return ops, nil
}
