package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb/nbdb"
	libdb "ovn-k8s/lib/ovsdb"
)

const (
	// manyPolicies select podsEach pods each, by one of groups labels.
	manyPolicies = 200
	podsEach     = 50
	groups       = 20
	// inForce is how many policies a burst of pods meets.
	inForce = 50
)

// groupLabel of a pod says to which group it belongs.
const groupLabel = "bench-group"

// newPolicy makes policy i: what its group lets in, from another one.
func newPolicy(round, i int) *networkingv1.NetworkPolicy {
	port := intstr.FromInt32(int32(8000 + i))
	group := func(n int) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{groupLabel: fmt.Sprint(n % groups)}}
	}
	peer := group(i + 1 + i/groups)
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: policyNamespace, Name: fmt.Sprintf("policy-%d-%d", round, i)},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: group(i),
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &peer}},
				Ports: []networkingv1.NetworkPolicyPort{{Port: &port}},
			}},
		},
	}
}

// policyNamespace is where policies and the pods that they select are.
var policyNamespace = namespaces()[0]

// measurePolicies creates many policies over many pods.
func measurePolicies(ctx context.Context, b *bench) error {
	f, err := b.ground(ctx)
	if err != nil {
		return err
	}
	db, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	var ours, plain, objects, rows []float64
	for round := range b.rounds {
		r, err := f.startReady(ctx, b, contenders()[0])
		if err != nil {
			return err
		}
		if _, err := f.createGrouped(ctx, groups*podsEach); err != nil {
			return r.failed(err)
		}
		if err := f.settle(ctx); err != nil {
			return r.failed(err)
		}
		b.say("round %d of %d: %d policies over %d pods each", round+1, b.rounds, manyPolicies, podsEach)
		mine, err := timed(func() error {
			if err := f.makePolicies(ctx, 2*round, manyPolicies); err != nil {
				return err
			}
			return awaitPolicies(ctx, db, manyPolicies)
		})
		if err != nil {
			return r.failed(err)
		}
		made := copyGroups(db)
		if err := f.deletePolicies(ctx, 2*round, manyPolicies); err != nil {
			return r.failed(err)
		}
		if err := awaitPolicies(ctx, db, 0); err != nil {
			return r.failed(err)
		}
		r.stop()
		if err := f.settle(ctx); err != nil {
			return err
		}
		api, err := timed(func() error { return f.makePolicies(ctx, 2*round+1, manyPolicies) })
		if err != nil {
			return err
		}
		nb, err := timed(func() error { return insertGroups(ctx, db, made) })
		if err != nil {
			return err
		}
		b.say("  %.2f s; objects alone %.2f s and rows alone %.2f s", mine, api, nb)
		ours, plain, objects, rows = append(ours, mine), append(plain, api+nb), append(objects, api), append(rows, nb)
		if err := f.clearPolicies(ctx, db, 2*round+1); err != nil {
			return err
		}
	}
	b.report.beside(fmt.Sprintf("%d policies over %d pods each: first create to last ACL", manyPolicies, podsEach), "s", 1.5, ours, plain).
		note("yardstick: creating the objects (%.2f s) and then inserting the rows (%.2f s), nothing else", median(objects), median(rows))
	return f.measureBurstUnderPolicies(ctx, b)
}

// makePolicies creates n policies.
func (f *field) makePolicies(ctx context.Context, round, n int) error {
	return parallel(ctx, n, func(ctx context.Context, i int) error {
		p := newPolicy(round, i)
		_, err := f.client.NetworkingV1().NetworkPolicies(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		return err
	})
}

// deletePolicies deletes the n policies of a round.
func (f *field) deletePolicies(ctx context.Context, round, n int) error {
	return parallel(ctx, n, func(ctx context.Context, i int) error {
		p := newPolicy(round, i)
		return f.client.NetworkingV1().NetworkPolicies(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
	})
}

// ofPolicy tells an ACL that a policy of ours owns.
func ofPolicy(acl *nbdb.ACL) bool {
	return strings.HasPrefix(acl.ExternalIDs[names.Owner], "policy/"+policyNamespace+"/policy-")
}

// awaitPolicies waits until n policies have ACLs.
func awaitPolicies(ctx context.Context, db *libdb.DB, n int) error {
	return awaitRows(ctx, fmt.Sprintf("the ACLs of %d policies", n), func() bool {
		return count(db, nbdb.ACLTable, ofPolicy) == n
	})
}

// A policed group is a port group with its ACLs.
type policed struct {
	group *nbdb.PortGroup
	acls  []*nbdb.ACL
}

// copyGroups copies all port groups with their ACLs.
func copyGroups(db *libdb.DB) []policed {
	acls := rowsOf(db, nbdb.ACLTable, func(*nbdb.ACL) bool { return true })
	var out []policed
	for _, g := range rowsOf(db, nbdb.PortGroupTable, func(*nbdb.PortGroup) bool { return true }) {
		p := policed{group: g}
		for _, a := range acls {
			if slices.Contains(g.ACLs, a.UUID) {
				p.acls = append(p.acls, a)
			}
		}
		out = append(out, p)
	}
	return out
}

// insertGroups inserts port groups and ACLs like those given.
func insertGroups(ctx context.Context, db *libdb.DB, made []policed) error {
	return insert(ctx, db, made, func(i int, p policed) ([]ovsdb.Operation, error) {
		p.group.UUID, p.group.ACLs = fmt.Sprintf("group%d", i), nil
		var ops []ovsdb.Operation
		for j, a := range p.acls {
			a.UUID = fmt.Sprintf("acl%d_%d", i, j)
			p.group.ACLs = append(p.group.ACLs, a.UUID)
			more, err := db.Client().Create(a)
			if err != nil {
				return nil, err
			}
			ops = append(ops, more...)
		}
		more, err := db.Client().Create(p.group)
		return append(ops, more...), err
	})
}

// clearPolicies removes the objects and rows of the yardstick, and all pods.
func (f *field) clearPolicies(ctx context.Context, db *libdb.DB, round int) error {
	if err := f.deletePolicies(ctx, round, manyPolicies); err != nil {
		return err
	}
	var ops []ovsdb.Operation
	for _, g := range rowsOf(db, nbdb.PortGroupTable, func(*nbdb.PortGroup) bool { return true }) {
		more, err := db.Client().Where(g).Delete()
		if err != nil {
			return err
		}
		ops = append(ops, more...)
	}
	if _, err := db.Transact(ctx, ops); err != nil {
		return err
	}
	return f.clear(ctx)
}

// measureBurstUnderPolicies creates a burst of pods with and without policies that
// select all of them.
func (f *field) measureBurstUnderPolicies(ctx context.Context, b *bench) error {
	var with, without []float64
	for round := range b.rounds {
		for _, policies := range []int{0, inForce} {
			r, err := f.startReady(ctx, b, contenders()[0])
			if err != nil {
				return err
			}
			if err := f.makePolicies(ctx, 1000+round, policies); err != nil {
				return r.failed(err)
			}
			if err := f.settle(ctx); err != nil {
				return r.failed(err)
			}
			burst, err := f.createGrouped(ctx, b.pods)
			if err != nil {
				return r.failed(err)
			}
			b.say("  burst under %d policies: %.2f s", policies, burst.took.Seconds())
			if policies > 0 {
				with = append(with, burst.took.Seconds())
			} else {
				without = append(without, burst.took.Seconds())
			}
			if err := f.deletePolicies(ctx, 1000+round, policies); err != nil {
				return r.failed(err)
			}
			if err := f.empty(ctx); err != nil {
				return r.failed(err)
			}
			r.stop()
			if err := f.clear(ctx); err != nil {
				return err
			}
		}
	}
	b.report.beside(fmt.Sprintf("burst of %d pods under %d policies: first create to last pod done", b.pods, inForce), "s", 1.5, with, without).
		note("yardstick: the same without policies; every pod is selected by %d to %d of them", inForce/groups, inForce/groups+1)
	return nil
}
