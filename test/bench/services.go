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
	libdb "ovn-k8s/lib/ovsdb"
)

const (
	// manyServices of endpointsEach are created at once.
	manyServices  = 500
	endpointsEach = 10
	// endpointChanges is how many changes of one endpoint are made, one at a time.
	endpointChanges = 200
)

// newService makes Service i without a selector: its endpoints are ours to say.
func newService(round, i int) *corev1.Service {
	spaces := namespaces()
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: spaces[i%len(spaces)], Name: fmt.Sprintf("service-%d-%d", round, i)},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
}

// newSlice makes the endpoints of a Service: of its ten, the last is on node last.
func newSlice(s *corev1.Service, i, last int) *discoveryv1.EndpointSlice {
	name, port, ready := "http", int32(8080), true
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for e := range endpointsEach {
		node := (i + e) % nodes
		if e == endpointsEach-1 {
			node = last
		}
		on := nodeName(node)
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.128.%d.%d", node, 10+i%200)},
			NodeName:   &on,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return slice
}

// measureServices creates many Services, and then changes endpoints one by one.
func measureServices(ctx context.Context, b *bench) error {
	f, err := b.ground(ctx)
	if err != nil {
		return err
	}
	db, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	var ours, plain, objects, rows, p50, p99 []float64
	for round := range b.rounds {
		r, err := f.startReady(ctx, b, contenders()[0])
		if err != nil {
			return err
		}
		b.say("round %d of %d: %d services of %d endpoints", round+1, b.rounds, manyServices, endpointsEach)
		mine, err := timed(func() error { return f.createServices(ctx, db, 2*round) })
		if err != nil {
			return r.failed(err)
		}
		changes, err := f.changeEndpoints(ctx, db, 2*round)
		if err != nil {
			return r.failed(err)
		}
		made := rowsOf(db, nbdb.LoadBalancerTable, complete)
		if err := f.deleteServices(ctx, 2*round); err != nil {
			return r.failed(err)
		}
		if err := awaitServices(ctx, db, 0); err != nil {
			return r.failed(err)
		}
		r.stop()
		if err := f.settle(ctx); err != nil {
			return err
		}
		api, err := timed(func() error { return f.makeServices(ctx, 2*round+1) })
		if err != nil {
			return err
		}
		nb, err := timed(func() error { return insertServices(ctx, db, made) })
		if err != nil {
			return err
		}
		b.say("  %.2f s; objects alone %.2f s and rows alone %.2f s; one endpoint p50 %.1f ms", mine, api, nb, median(changes))
		ours, plain, objects, rows = append(ours, mine), append(plain, api+nb), append(objects, api), append(rows, nb)
		p50, p99 = append(p50, median(changes)), append(p99, percentile(changes, 99))
		if err := f.clearServices(ctx, db, 2*round+1); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("%d services of %d endpoints: ", manyServices, endpointsEach)
	b.report.beside(name+"first create to last row", "s", 1.5, ours, plain).
		note("yardstick: creating the objects (%.2f s) and then inserting the rows (%.2f s), nothing else", median(objects), median(rows))
	b.report.alone("one endpoint changes: API call to row, p50", "ms", 0, p50...)
	b.report.alone("one endpoint changes: API call to row, p99", "ms", 0, p99...)
	return nil
}

// makeServices creates the objects.
func (f *field) makeServices(ctx context.Context, round int) error {
	return parallel(ctx, manyServices, func(ctx context.Context, i int) error {
		s := newService(round, i)
		if _, err := f.client.CoreV1().Services(s.Namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err := f.client.DiscoveryV1().EndpointSlices(s.Namespace).Create(ctx, newSlice(s, i, (i+endpointsEach-1)%nodes), metav1.CreateOptions{})
		return err
	})
}

// createServices creates the objects, and returns when all their rows are there.
func (f *field) createServices(ctx context.Context, db *libdb.DB, round int) error {
	if err := f.makeServices(ctx, round); err != nil {
		return err
	}
	return awaitServices(ctx, db, manyServices)
}

// complete tells a load balancer of ours with all endpoints.
func complete(lb *nbdb.LoadBalancer) bool {
	for _, backends := range lb.Vips {
		if strings.Count(backends, ",") == endpointsEach-1 && strings.HasPrefix(lb.Name, "service/") {
			return true
		}
	}
	return false
}

// awaitServices waits until so many Services of ours have rows.
func awaitServices(ctx context.Context, db *libdb.DB, n int) error {
	return awaitRows(ctx, fmt.Sprintf("the rows of %d services", n), func() bool {
		return count(db, nbdb.LoadBalancerTable, complete) == n
	})
}

// changeEndpoints moves an endpoint of one Service from node to node, and returns
// how many milliseconds each move took.
func (f *field) changeEndpoints(ctx context.Context, db *libdb.DB, round int) ([]float64, error) {
	s := newService(round, 0)
	row := "service/" + s.Namespace + "/" + s.Name + "/tcp"
	var took []float64
	for i := range endpointChanges {
		slice := newSlice(s, 0, 20+i%50)
		address := slice.Endpoints[endpointsEach-1].Addresses[0] + ":"
		seconds, err := timed(func() error {
			if _, err := f.client.DiscoveryV1().EndpointSlices(s.Namespace).Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
				return err
			}
			return awaitRows(ctx, "a changed endpoint", func() bool {
				return count(db, nbdb.LoadBalancerTable, func(lb *nbdb.LoadBalancer) bool {
					return lb.Name == row && strings.Contains(fmt.Sprint(lb.Vips), address)
				}) == 1
			})
		})
		if err != nil {
			return nil, err
		}
		took = append(took, seconds*1000)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(singlePause / 10):
		}
	}
	return took, nil
}

// deleteServices deletes the objects of a round.
func (f *field) deleteServices(ctx context.Context, round int) error {
	return parallel(ctx, manyServices, func(ctx context.Context, i int) error {
		s := newService(round, i)
		if err := f.client.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		return f.client.DiscoveryV1().EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{})
	})
}

// insertServices inserts load balancers like those given, and puts them into the
// same group.
func insertServices(ctx context.Context, db *libdb.DB, made []*nbdb.LoadBalancer) error {
	group := rowsOf(db, nbdb.LoadBalancerGroupTable, func(g *nbdb.LoadBalancerGroup) bool { return g.Name == names.LoadBalancerGroup })
	return insert(ctx, db, made, func(i int, lb *nbdb.LoadBalancer) ([]ovsdb.Operation, error) {
		lb.UUID = fmt.Sprintf("lb%d", i)
		ops, err := db.Client().Create(lb)
		if err != nil {
			return nil, err
		}
		put, err := db.Client().Where(group[0]).Mutate(group[0], model.Mutation{Field: &group[0].LoadBalancer, Mutator: ovsdb.MutateOperationInsert, Value: []string{lb.UUID}})
		return append(ops, put...), err
	})
}

// clearServices removes the objects and rows of the yardstick.
func (f *field) clearServices(ctx context.Context, db *libdb.DB, round int) error {
	if err := f.deleteServices(ctx, round); err != nil {
		return err
	}
	var ops []ovsdb.Operation
	for _, g := range rowsOf(db, nbdb.LoadBalancerGroupTable, func(g *nbdb.LoadBalancerGroup) bool { return len(g.LoadBalancer) > 0 }) {
		g.LoadBalancer = nil
		more, err := db.Client().Where(g).Update(g, &g.LoadBalancer)
		if err != nil {
			return err
		}
		ops = append(ops, more...)
	}
	for _, lb := range rowsOf(db, nbdb.LoadBalancerTable, complete) {
		more, err := db.Client().Where(lb).Delete()
		if err != nil {
			return err
		}
		ops = append(ops, more...)
	}
	if _, err := db.Transact(ctx, ops); err != nil {
		return err
	}
	return f.settle(ctx)
}
