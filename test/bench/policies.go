package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/test/bench/field"
	"ovn-k8s/test/bench/run"
)

const (
	// manyPolicies select podsEach pods each, by one of groups labels.
	manyPolicies = 200
	podsEach     = 50
	groups       = 20
	// inForce is the number of policies during a burst of pods.
	inForce = 50
)

// groupLabel has a pod's group.
const groupLabel = "bench-group"

// newPolicy makes policy i: ingress of its group from another group.
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

// groupedPod makes pod i of a round in one of the groups of policies, by turns.
func groupedPod(round, i int) *corev1.Pod {
	p := field.NewPod(round, i)
	p.Namespace = policyNamespace
	p.Labels[groupLabel] = fmt.Sprint(i % groups)
	return p
}

// policyNamespace is the namespace of policies and their pods.
var policyNamespace = field.Namespaces()[0]

// measurePolicies creates many policies over many pods.
func measurePolicies(ctx context.Context, b *run.Bench) error {
	f, err := b.Ground(ctx)
	if err != nil {
		return err
	}
	c := &batch{
		what: fmt.Sprintf("%d policies over %d pods each", manyPolicies, podsEach), last: "ACL", n: manyPolicies,
		create: createPolicy, remove: removePolicy, leftover: leftoverPolicies,
		ready: func(db *field.Replica) int { return field.Count(db, nbdb.ACLTable, ofPolicy) },
		copied: func(db *field.Replica) func(context.Context) error {
			groups, switches := copyGroups(db), copySwitches(db)
			return func(ctx context.Context) error {
				if err := insertGroups(ctx, db, groups); err != nil {
					return err
				}
				return insertSwitches(ctx, db, switches)
			}
		},
		before: func(ctx context.Context, f *field.Field) error {
			_, err := createGrouped(ctx, f, groups*podsEach)
			return err
		},
	}
	if err := c.measure(ctx, b, f); err != nil {
		return err
	}
	if b.Beside != "" {
		return nil // a burst without policies is no yardstick of another build
	}
	return measureBurstUnderPolicies(ctx, f, b)
}

func createPolicy(ctx context.Context, f *field.Field, round, i int) error {
	p := newPolicy(round, i)
	_, err := f.Client.NetworkingV1().NetworkPolicies(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
	return err
}

func removePolicy(ctx context.Context, f *field.Field, round, i int) error {
	p := newPolicy(round, i)
	return f.Client.NetworkingV1().NetworkPolicies(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
}

// ofPolicy reports whether an ACL belongs to a policy of the benchmark.
func ofPolicy(acl *nbdb.ACL) bool {
	return strings.HasPrefix(acl.ExternalIDs[names.Owner], "policy/"+policyNamespace+"/policy-")
}

// A policed group is a port group with its ACLs.
type policed struct {
	group *nbdb.PortGroup
	acls  []*nbdb.ACL
}

// ofPolicies reports whether a port group belongs to policies, and not to the cluster.
func ofPolicies(g *nbdb.PortGroup) bool { return g.ExternalIDs[names.Owner] != "cluster" }

// copyGroups copies the port groups of policies with their ACLs.
func copyGroups(db *field.Replica) []policed {
	acls := field.RowsOf(db, nbdb.ACLTable, func(*nbdb.ACL) bool { return true })
	var out []policed
	for _, g := range field.RowsOf(db, nbdb.PortGroupTable, ofPolicies) {
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
func insertGroups(ctx context.Context, db *field.Replica, made []policed) error {
	return field.Insert(ctx, db, made, func(i int, p policed) ([]ovsdb.Operation, error) {
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

// A policedSwitch is a node's switch with its ACLs while policies exist.
type policedSwitch struct {
	sw   *nbdb.LogicalSwitch
	acls []*nbdb.ACL
}

// copySwitches copies these ACLs of all switches.
func copySwitches(db *field.Replica) []policedSwitch {
	acls := map[string]*nbdb.ACL{}
	for _, a := range field.RowsOf(db, nbdb.ACLTable, ofNode) {
		acls[a.UUID] = a
	}
	var out []policedSwitch
	for _, sw := range field.RowsOf(db, nbdb.LogicalSwitchTable, func(*nbdb.LogicalSwitch) bool { return true }) {
		p := policedSwitch{sw: sw}
		for _, id := range sw.ACLs {
			if a := acls[id]; a != nil {
				p.acls = append(p.acls, a)
			}
		}
		if len(p.acls) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// ofNode reports whether an ACL is a node switch's while policies exist.
func ofNode(acl *nbdb.ACL) bool {
	_, ok := policy.NodeOf(nb.Unit(acl.ExternalIDs[names.Owner]))
	return ok && acl.Action == nbdb.ACLActionAllowRelated
}

// insertSwitches inserts ACLs like those given.
func insertSwitches(ctx context.Context, db *field.Replica, made []policedSwitch) error {
	return field.Insert(ctx, db, made, func(i int, p policedSwitch) (ops []ovsdb.Operation, err error) {
		var ids []string
		for j, a := range p.acls {
			a.UUID = fmt.Sprintf("node%d_%d", i, j)
			ids = append(ids, a.UUID)
			more, err := db.Client().Create(a)
			if err != nil {
				return nil, err
			}
			ops = append(ops, more...)
		}
		more, err := mutateACLs(db, p.sw, ovsdb.MutateOperationInsert, ids)
		return append(ops, more...), err
	})
}

// mutateACLs are the operations to add ACLs to a switch, or to delete them from it.
func mutateACLs(db *field.Replica, sw *nbdb.LogicalSwitch, mutator ovsdb.Mutator, ids []string) ([]ovsdb.Operation, error) {
	return db.Client().Where(sw).Mutate(sw, model.Mutation{Field: &sw.ACLs, Mutator: mutator, Value: ids})
}

// leftoverPolicies are the operations to remove the rows of policies.
func leftoverPolicies(db *field.Replica) (ops []ovsdb.Operation, err error) {
	for _, p := range copySwitches(db) {
		var ids []string
		for _, a := range p.acls {
			ids = append(ids, a.UUID)
		}
		more, err := mutateACLs(db, p.sw, ovsdb.MutateOperationDelete, ids)
		if err != nil {
			return nil, err
		}
		ops = append(ops, more...)
	}
	for _, g := range field.RowsOf(db, nbdb.PortGroupTable, ofPolicies) {
		more, err := db.Client().Where(g).Delete()
		if err != nil {
			return nil, err
		}
		ops = append(ops, more...)
	}
	return ops, nil
}

// measureBurstUnderPolicies creates a burst of pods with and without policies for all of them.
func measureBurstUnderPolicies(ctx context.Context, f *field.Field, b *run.Bench) error {
	var with, without []float64
	for round := range b.Rounds {
		for _, policies := range []int{0, inForce} {
			r, err := f.StartReady(ctx, b.Contenders()[0])
			if err != nil {
				return err
			}
			if err := field.Parallel(ctx, policies, func(ctx context.Context, i int) error { return createPolicy(ctx, f, 1000+round, i) }); err != nil {
				return r.Failed(err)
			}
			if err := f.Settle(ctx); err != nil {
				return r.Failed(err)
			}
			burst, err := createGrouped(ctx, f, b.Pods)
			if err != nil {
				return r.Failed(err)
			}
			b.Say("  burst under %d policies: %.2f s", policies, burst.Took.Seconds())
			if policies > 0 {
				with = append(with, burst.Took.Seconds())
			} else {
				without = append(without, burst.Took.Seconds())
			}
			if err := field.Parallel(ctx, policies, func(ctx context.Context, i int) error { return removePolicy(ctx, f, 1000+round, i) }); err != nil {
				return r.Failed(err)
			}
			if err := f.Empty(ctx); err != nil {
				return r.Failed(err)
			}
			r.Stop()
			if err := f.Clear(ctx); err != nil {
				return err
			}
		}
	}
	b.Report.Beside(fmt.Sprintf("burst of %d pods under %d policies: first create to last pod done", b.Pods, inForce), "s", 1.5, with, without).
		Explain("yardstick: the same without policies; every pod is selected by %d to %d of them", inForce/groups, inForce/groups+1)
	return nil
}

// createGrouped is create for pods in the groups of policies.
func createGrouped(ctx context.Context, f *field.Field, n int) (field.Burst, error) {
	f.Round++
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = groupedPod(f.Round, i)
	}
	return f.CreatePods(ctx, pods)
}
