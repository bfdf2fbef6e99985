package nbsync_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	networkingv1 "k8s.io/api/networking/v1"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
)

// A recorder keeps the text of each transaction.
type recorder struct {
	nbsync.DB
	texts []string
}

func (r *recorder) Transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	text, err := json.Marshal(ops)
	if err != nil {
		return nil, err
	}
	r.texts = append(r.texts, string(text))
	return r.DB.Transact(ctx, ops)
}

// A broken database is one whose disk is full.
type broken struct{ nbsync.DB }

func (broken) Transact(context.Context, []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	return nil, &ovsdb.IOError{}
}

// With a full disk, only units with changes fail: so a success of one of them means that the disk is no longer full.
func TestUnitsWithoutChangesDoNotFail(t *testing.T) {
	_, db, s := open(t)
	w := desired.NewWorld()
	w.Put(cluster(t, 0))
	w.Put(newPod("present", "n0"))
	w.Allocate()
	apply(t, s, rowsOf(w, w.Units()))
	w.Put(newPod("new", "n0"))
	w.Allocate()
	s.DB = broken{db}
	_, failed := s.Apply(t.Context(), rowsOf(w, w.Units()))
	if _, ok := failed["pod/default/new"]; len(failed) != 1 || !ok {
		t.Errorf("failed: %v", failed)
	}
}

// large has the rows of a Service of about a megabyte.
func large(i, turn int) []nb.Row {
	tcp := nbdb.LoadBalancerProtocolTCP
	lb := &nbdb.LoadBalancer{Name: fmt.Sprint("large-", i), Protocol: &tcp, Vips: map[string]string{}}
	for v := range 1000 {
		lb.Vips[fmt.Sprintf("172.16.%d.%d:%d", i, v%250, 1000+v)] = strings.Repeat("10.0.0.1:8080,", 70) + fmt.Sprint("10.0.0.2:", 1+turn)
	}
	return []nb.Row{{Table: nbdb.LoadBalancerTable, ID: lb.Name, Model: lb}}
}

// L3: the bytes of a transaction are bounded, not only its units. A pod comes before Services, and its policy not
// later than the pod.
func TestTransactionsAreBoundedInBytes(t *testing.T) {
	_, db, s := open(t)
	r := &recorder{DB: db}
	s.DB, s.Compare = r, desired.Compare
	w := desired.NewWorld()
	w.Put(cluster(t, 0))
	w.Allocate()
	apply(t, s, rowsOf(w, w.Units()))
	w.Put(open80())
	w.Put(newPod("p", "n0"))
	w.Allocate()
	for turn, what := range []string{"new", "changed", "deleted"} {
		want := rowsOf(w, w.Units())
		for i := range 12 {
			u := nb.Unit(fmt.Sprint("service/default/large-", i))
			if want[u] = nil; what != "deleted" {
				want[u] = large(i, turn)
			}
		}
		r.texts = nil
		apply(t, s, want)
		for i, text := range r.texts {
			if len(text) > 5<<20 {
				t.Errorf("%s: transaction %d has %d bytes", what, i, len(text))
			}
		}
		first := func(text string) int {
			return slices.IndexFunc(r.texts, func(one string) bool { return strings.Contains(one, text) })
		}
		if acl, port, vip := first(`"table":"ACL"`), first("default_p"), first("vips"); turn == 0 && (acl < 0 || acl > port || port >= vip) {
			t.Errorf("the first ACL is in transaction %d, the pod in %d, the first Service in %d", acl, port, vip)
		}
		if n := len(r.texts); what == "new" && (n < 4 || n > 8) {
			t.Errorf("%d transactions", n)
		}
	}
}

// wide has one rule: 19 000 subnets, a match of about 280 kB.
func wide(i, turn int) *networkingv1.NetworkPolicy {
	p := open80()
	p.Name, p.Spec.Ingress = fmt.Sprint("wide-", i), []networkingv1.NetworkPolicyIngressRule{{}}
	for n := range 19_000 {
		block := &networkingv1.IPBlock{CIDR: fmt.Sprintf("198.%d.%d.%d/32", 18+turn, n/250, n%250)}
		p.Spec.Ingress[0].From = append(p.Spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{IPBlock: block})
	}
	return p
}

// L1: the bytes of a transaction of policies are bounded. Rows that isolate, and all changes of pods, are in the first;
// the allow rules of large policies come later, and are not in force before.
func TestPoliciesAreBoundedInBytes(t *testing.T) {
	_, db, s := open(t)
	r := &recorder{DB: db}
	s.DB, s.Compare = r, desired.Compare
	w := desired.NewWorld()
	w.Put(cluster(t, 0))
	w.Put(newPod("p", "n0"))
	w.Allocate()
	apply(t, s, rowsOf(w, w.Units()))
	for turn, what := range []string{"new", "changed", "the same"} {
		for i := range 40 {
			w.Put(wide(i, min(turn, 1)))
		}
		r.texts = nil
		apply(t, s, rowsOf(w, w.Units()))
		for i, text := range r.texts {
			if len(text) > 6<<20 {
				t.Errorf("%s: transaction %d has %d bytes", what, i, len(text))
			}
			if deny := strings.Contains(text, "default/all pods/ingress/deny"); deny != (turn == 0 && i == 0) {
				t.Errorf("%s: the ACL that denies is in transaction %d: %t", what, i, deny)
			}
			if i == 0 && strings.Count(text, `"insert"`) > 100 {
				t.Errorf("%s: the first transaction has all rules", what)
			}
		}
		if n := len(r.texts); turn < 2 && (n < 3 || n > 6) || turn == 2 && n > 0 {
			t.Errorf("%s: %d transactions", what, n)
		}
	}
	plan, err := s.Plan(rowsOf(w, w.Units()))
	if err != nil || len(plan.Changes) > 0 {
		t.Errorf("%v: %.300v is left", err, plan.Changes)
	}
}
