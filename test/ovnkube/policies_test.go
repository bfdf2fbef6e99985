package ovnkube

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/poll"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// Policies is a cluster with a namespace for each check. Its pods are named after their label role.
type policies struct {
	*cluster
	namespace string
}

// Checks of policies that change.
func TestCheck84_88_91_92_93_94_Policies(t *testing.T) {
	c := newCluster(t, world.Options{Minions: 1})
	c.run()
	for _, check := range []struct {
		name, namespace string
		test            func(*policies)
	}{
		{"AC-84 a later pod", "later", (*policies).laterPod},
		{"AC-88 two policies", "two", (*policies).twoPolicies},
		{"AC-91 a restart", "restart", (*policies).restart},
		{"AC-92 changes", "changes", (*policies).changes},
		{"AC-93 with its namespace", "together", (*policies).together},
		{"AC-94 dots", "dots", (*policies).dots},
	} {
		t.Run(check.name, func(t *testing.T) {
			check.test(&policies{&cluster{T: t, World: c.World, ctx: c.ctx}, check.namespace})
		})
	}
}

// make makes the namespace, and a pod for each role.
func (p *policies) make(roles ...string) (pods []world.Endpoint) {
	p.Helper()
	p.must(p.Kube.CreateNamespace(p.ctx, p.namespace))
	for _, role := range roles {
		pods = append(pods, p.pod(role))
	}
	return pods
}

// pod makes a pod, a server on the master and the others on minion1.
func (p *policies) pod(role string) world.Endpoint {
	p.Helper()
	node := "minion1"
	if role == "server" {
		node = "master"
	}
	ctx, cancel := context.WithTimeout(p.ctx, limit.Of(time.Minute))
	defer cancel()
	p.must(poll.Until(ctx, func() error { // a new namespace has its service account a moment later
		_, err := p.Kube.CreatePod(ctx, p.namespace, role, node, func(o *corev1.Pod) { o.Labels = map[string]string{"role": role} })
		return err
	}))
	e, err := p.AwaitPod(ctx, p.namespace, role)
	p.must(err)
	return e
}

// allow makes or changes a policy: only pods of some roles reach the server.
func (p *policies) allow(name string, roles ...string) {
	p.Helper()
	from := ""
	for _, r := range roles {
		from += "{podSelector: {matchLabels: {role: " + r + "}}}, "
	}
	rules := "[]"
	if from != "" {
		rules = "[{from: [" + from + "]}]"
	}
	p.must(p.Kube.Apply(p.ctx, fmt.Appendf(nil, "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: %s}\nspec: {podSelector: {matchLabels: {role: server}}, ingress: %s}\n", name, p.namespace, rules)))
}

func (p *policies) drop(name string) {
	p.Helper()
	p.must(p.Kube.Client().NetworkingV1().NetworkPolicies(p.namespace).Delete(p.ctx, name, metav1.DeleteOptions{}))
}

// reaches waits until a pod gets, or does not get, answers of another one.
func (p *policies) reaches(from, to world.Endpoint, want bool) {
	p.Helper()
	for _, a := range to.Addresses {
		attempt := probe.Probe{Netns: from.Netns, Network: "tcp", Address: probe.Address(a, kubelet.DefaultPort)}
		p.eventually(fmt.Sprintf("%s, answered: %v, %v", from.Name, want, attempt), func() error {
			if !want {
				return attempt.Silence(p.ctx, 2)
			}
			ctx, cancel := context.WithTimeout(p.ctx, limit.Of(time.Second))
			defer cancel()
			_, err := attempt.Once(ctx)
			return err
		})
	}
}

// laterPod creates a pod after the policy that allows it, and takes its label away.
func (p *policies) laterPod() {
	pods := p.make("server", "other")
	p.allow("clients", "client")
	p.reaches(pods[1], pods[0], false)
	client := p.pod("client")
	p.reaches(client, pods[0], true)
	_, err := p.Kube.Client().CoreV1().Pods(p.namespace).Patch(p.ctx, "client", types.MergePatchType, []byte(`{"metadata":{"labels":{"role":null}}}`), metav1.PatchOptions{})
	p.must(err)
	p.reaches(client, pods[0], false)
}

// twoPolicies deletes one of two policies of a pod, and then the other one.
func (p *policies) twoPolicies() {
	pods := p.make("server", "a", "b", "c")
	p.allow("from-a", "a")
	p.allow("from-b", "b")
	for i, want := range []bool{true, true, false} {
		p.reaches(pods[i+1], pods[0], want)
	}
	p.drop("from-a")
	for i, want := range []bool{false, true, false} {
		p.reaches(pods[i+1], pods[0], want)
	}
	p.drop("from-b")
	for i := range 3 {
		p.reaches(pods[i+1], pods[0], true)
	}
}

// session opens one from a pod to another.
func (p *policies) session(from, to world.Endpoint) *probe.Session {
	p.Helper()
	s, err := probe.OpenSession(p.ctx, from.Netns, probe.Address(to.Addresses[0], kubelet.DefaultPort))
	p.must(err)
	p.Cleanup(func() { s.Close() })
	return s
}

// goesOn waits until a session is answered, which was never disturbed.
func (p *policies) goesOn(s *probe.Session) {
	p.Helper()
	before := s.Typed()
	p.eventually("the session goes on", func() error { return s.Undisturbed(before) })
}

// restart kills the master and starts it again: no row changes, and an allowed session goes on.
func (p *policies) restart() {
	pods := p.make("server", "a", "b")
	for _, name := range []string{"one", "two", "three"} {
		p.allow(name, "a")
	}
	p.reaches(pods[1], pods[0], true)
	p.reaches(pods[2], pods[0], false)
	p.eventually("nothing differs", func() error { return p.Check(p.ctx) })
	s, before := p.session(pods[1], pods[0]), p.rows()
	p.must(p.RestartOVNKube(p.ctx, p.Master(), p.Master().Arguments()...))
	p.allow("after", "a")
	p.owns("after", true) // all others were compared before
	p.drop("after")
	p.owns("after", false)
	if diff := difference(before, p.rows()); diff != "" {
		p.Errorf("rows (-before +after)\n%s", diff)
	}
	p.goesOn(s)
	p.reaches(pods[2], pods[0], false)
}

// owns waits until a policy has rows, or none, and returns their UUIDs.
func (p *policies) owns(policy string, want bool) (rows string) {
	p.Helper()
	p.eventually(fmt.Sprintf("policy %s has rows: %v", policy, want), func() error {
		rows = ""
		for _, table := range []string{"ACL", "Port_Group", "Address_Set"} {
			found, err := p.Central.NBCtl("--bare", "--columns=_uuid", "find", table, "external_ids:ovn-k8s-owner=policy/"+p.namespace+"/"+policy)
			p.must(err)
			rows += found
		}
		if (rows != "") != want {
			return errors.New(rows)
		}
		return nil
	})
	return rows
}

// changes a policy again and again. A session that all versions allow is not disturbed, and no connection that all versions
// forbid gets through.
func (p *policies) changes() {
	pods := p.make("server", "good", "bad")
	p.allow("changing", "good")
	p.reaches(pods[1], pods[0], true)
	p.reaches(pods[2], pods[0], false)
	s := p.session(pods[1], pods[0])
	bad := probe.Probe{Netns: pods[2].Netns, Network: "udp", Address: probe.Address(pods[0].Addresses[0], kubelet.DefaultPort)}
	ctx, end := context.WithCancel(p.ctx)
	done := make(chan error, 1)
	go func() { done <- p.neverAnswered(ctx, bad) }()
	for i := range 10 {
		p.allow("changing", [][]string{{"good", "other"}, {"good"}}[i%2]...)
		p.eventually("nothing differs", func() error { return p.Check(p.ctx) })
	}
	end()
	p.must(<-done)
	p.goesOn(s)
}

// neverAnswered sends requests until ctx ends. An answer is an error.
func (p *policies) neverAnswered(ctx context.Context, request probe.Probe) error {
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, limit.Of(300*time.Millisecond))
		answer, err := request.Once(once)
		cancel()
		if err == nil {
			return fmt.Errorf("%v was answered: %q", request, answer)
		}
	}
	return nil
}

// together makes a namespace, its policy and its pods at once.
func (p *policies) together() {
	_, err := p.Kube.Client().CoreV1().Namespaces().Create(p.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}, metav1.CreateOptions{})
	p.must(err)
	p.allow("clients", "client")
	server, client, other := p.pod("server"), p.pod("client"), p.pod("other")
	p.reaches(client, server, true)
	p.reaches(other, server, false)
}

// dots deletes a policy whose name begins with that of another one and a dot.
func (p *policies) dots() {
	p.make("server", "a")
	kept := map[string]string{"web": "", "web.db.x": "", "db": ""}
	p.allow("web.db", "a")
	p.owns("web.db", true)
	for name := range kept {
		p.allow(name, "a")
		kept[name] = p.owns(name, true)
	}
	p.drop("web.db")
	p.owns("web.db", false)
	for name, before := range kept {
		if after := p.owns(name, true); after != before {
			p.Errorf("policy %s has %s, before %s", name, after, before)
		}
	}
}
