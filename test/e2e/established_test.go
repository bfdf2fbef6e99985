package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"ovn-k8s/test/probe"
)

// cutWithin bounds the life of a connection after it is no longer allowed. quiet is
// the time without an answer after which it counts as cut.
const (
	cutWithin = 2 * time.Second
	quiet     = 2 * time.Second
)

// onlyB allows only the pods b of all namespaces to reach x/a.
const onlyB = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: only-b, namespace: x}
spec: {podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {pod: b}}}]}]}
`

// A path to x/a is written FROM or FROM by WAY. WAY is its Service (vip) or a
// NodePort on a node (port@NODE); without it, the pod's own address.
func (y *yard) frontend(t *testing.T, attempt string, network string) []netip.AddrPort {
	t.Helper()
	_, attempt, _ = strings.Cut(attempt, " by ")
	service := y.services["x/a"]
	number := 0
	for _, p := range service.Spec.Ports {
		if strings.EqualFold(string(p.Protocol), network) {
			number = int(p.NodePort)
		}
	}
	to, port := y.pods["x/a"].Addresses, 80
	switch node, isPort := strings.CutPrefix(attempt, "port@"); {
	case isPort:
		to, port = nodeAddrs(node), number
	case attempt == "vip":
		to, port = addrs(service.Spec.ClusterIPs), 8000
	}
	var out []netip.AddrPort
	for _, a := range to {
		out = append(out, probe.Address(a, port))
	}
	return out
}

// A talk is a session and its path.
type talk struct {
	*probe.Session
	text string
}

// talks opens sessions by attempts, each by TCP and UDP and in both families.
func (y *yard) talks(t *testing.T, attempts ...string) (list []talk) {
	t.Helper()
	for _, attempt := range attempts {
		from, _, _ := strings.Cut(attempt, " by ")
		for _, network := range []string{"tcp", "udp"} {
			for _, to := range y.frontend(t, attempt, network) {
				p := probe.Probe{Netns: y.find(t, from).netns, Network: network, Address: to}
				list = append(list, openTalk(t, fmt.Sprintf("%s, %v", attempt, p), p))
			}
		}
	}
	return list
}

// openTalk opens a session until the end of the test.
func openTalk(t *testing.T, text string, p probe.Probe) talk {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := p.Until(ctx); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var s *probe.Session
	eventually(t, text+" opens", func() (ok bool) {
		var err error
		if s, err = p.Open(ctx); err != nil {
			t.Logf("%s: %v: trying again with an empty cache of flows", text, errors.Join(err, cluster.ForgetFlows(ctx)))
		}
		return err == nil
	})
	t.Cleanup(func() { s.Close() })
	eventually(t, text+" is answered", func() bool { return s.Typed().Lines > 3 })
	return talk{s, text}
}

// Connections that become forbidden are cut within two seconds, for every kind of
// change and through every frontend; allowed ones continue.
func TestEstablishedConnections(t *testing.T) {
	y := newYard(t)
	apply := func(policies string) {
		t.Helper()
		if err := cluster.Kube.Apply(t.Context(), []byte(policies)); err != nil {
			t.Fatal(err)
		}
	}
	set := func(who, key string, value *string) { label(t, who, map[string]*string{key: value}) }
	value := func(s string) *string { return &s }
	policy := func(namespace, spec string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: changing, namespace: " + namespace + "}\nspec: " + spec
	}
	// Through another node's NodePort the source is that node.
	all := func(from string) []string { return []string{from, from + " by vip", from + " by port@" + places[from]} }
	for _, tt := range []struct {
		name         string
		before, then func()
		cut, kept    []string
	}{
		{
			name: "a policy comes", then: func() { apply(onlyB) },
			cut:  append(all("w/a"), "x/c", "node:minion2", "node:minion2 by vip", "w/c", "w/b by port@minion2"),
			kept: append(all("w/b"), "node:master", "node:master by vip"),
		},
		{
			name:   "a policy changes",
			before: func() { apply(policy("x", "{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}")) },
			then: func() {
				apply(policy("x", "{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}], ports: [{port: 81}]}, {from: [{podSelector: {}}]}]}"))
			},
			cut: []string{"w/a", "w/a by vip", "w/b"}, kept: []string{"x/b", "x/b by vip", "x/c by port@minion1"},
		},
		{
			name:   "a client loses its label",
			before: func() { apply(onlyB) },
			then:   func() { set("w/b", "pod", value("other")) },
			cut:    all("w/b"), kept: []string{"x/b", "x/b by vip"},
		},
		{
			name:   "a pod gets the label of a policy",
			before: func() { apply(policy("x", "{podSelector: {matchLabels: {locked: 'yes'}}}")) },
			then:   func() { set("x/a", "locked", value("yes")) },
			cut:    []string{"w/a", "w/b by vip", "x/b by port@minion1", "node:minion2"}, kept: []string{"node:master"},
		},
		{
			name: "a namespace loses its label",
			before: func() {
				set("w", "team", value("blue"))
				set("z", "team", value("blue"))
				apply(policy("x", "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: blue}}}]}]}"))
			},
			then: func() { set("w", "team", nil) },
			cut:  []string{"w/a", "w/b", "w/c by vip"}, kept: []string{"z/a", "z/a by vip", "z/a by port@minion2"},
		},
		{
			name: "egress is forbidden",
			then: func() {
				apply(policy("w", "{podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]}"))
			},
			cut: []string{"w/a", "w/a by vip", "w/a by port@minion1"}, kept: append(all("w/b"), "w/c by vip", "node:minion2"),
		},
		{
			name: "what egress goes to loses its label",
			before: func() {
				set("x/a", "role", value("web"))
				apply(policy("w", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}, podSelector: {matchLabels: {role: web}}}]}]}"))
			},
			then: func() { set("x/a", "role", nil) },
			cut:  []string{"w/a", "w/b by vip"}, kept: []string{"z/a", "z/a by vip"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Cleanup(func() {
				dropPolicies(t, "x")
				dropPolicies(t, "w")
				set("w/b", "pod", value("b"))
				set("x/a", "locked", nil)
				set("x/a", "role", nil)
				set("w", "team", nil)
				set("z", "team", nil)
			})
			if tt.before != nil {
				tt.before()
			}
			cut, kept := y.talks(t, tt.cut...), y.talks(t, tt.kept...)
			tt.then()
			checkCut(t, time.Now(), cut)
			checkKept(t, kept)
		})
	}
}

// checkCut checks that talks end soon after start.
func checkCut(t *testing.T, start time.Time, cut []talk) {
	t.Helper()
	var longest time.Duration
	for _, s := range cut {
		for time.Since(s.Typed().Last) < quiet && time.Since(start) < cutWithin+quiet {
			time.Sleep(10 * time.Millisecond)
		}
		took := s.Typed().Last.Sub(start)
		if longest = max(longest, took); took > cutWithin {
			t.Errorf("%s was answered %s after the change", s.text, took)
		}
	}
	t.Logf("%d sessions cut, the last after %s", len(cut), longest.Round(time.Millisecond))
}

// checkKept checks that talks continue and were never disturbed.
func checkKept(t *testing.T, kept []talk) {
	t.Helper()
	for _, s := range kept {
		if err := s.goesOn(t); err != nil {
			t.Errorf("%s: %v", s.text, err)
		}
	}
}

// goesOn waits until a talk gets answers, and returns an error if it was ever disturbed.
func (s talk) goesOn(t *testing.T) error {
	t.Helper()
	now := s.Typed()
	eventually(t, s.text+" goes on", func() bool { return s.Typed().Lines > now.Lines+3 })
	return s.Undisturbed(now)
}

// A connection cut by a policy continues when it is allowed again, and a hundred
// changes of other policies do not disturb an allowed one.
func TestEstablishedConnectionsSurviveOthersPolicies(t *testing.T) {
	y := newYard(t)
	cut, kept := y.talks(t, "w/a", "w/a by vip"), y.talks(t, "w/b", "w/b by vip", "x/b by port@minion1", "node:master")
	if err := cluster.Kube.Apply(t.Context(), []byte(onlyB)); err != nil {
		t.Fatal(err)
	}
	checkCut(t, time.Now(), cut)
	for i := range 100 {
		policy := fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: other-%d, namespace: w}\nspec: {podSelector: {matchLabels: {app: other-%d}}, ingress: [{}]}\n", i, i)
		if err := cluster.Kube.Apply(t.Context(), []byte(policy)); err != nil {
			t.Fatal(err)
		}
	}
	dropPolicies(t, "w")
	time.Sleep(time.Second) // until the last one works
	checkKept(t, kept)
	for _, s := range cut {
		if time.Since(s.Typed().Last) < quiet {
			t.Errorf("%s is answered again", s.text)
		}
	}
	dropPolicies(t, "x")
	for _, s := range cut {
		last := s.Typed().Lines
		eventually(t, s.text+" goes on when it is allowed again", func() bool { return s.Typed().Lines > last })
	}
	var longest time.Duration
	for _, s := range kept {
		longest = max(longest, s.Close().Silence)
	}
	t.Logf("%d sessions kept, the longest silence %s", len(kept), longest)
}

// goOn checks that all sessions go on without a loss.
func goOn(t *testing.T, when string, sessions []*probe.Session) {
	t.Helper()
	for _, s := range sessions {
		before := s.Typed()
		var why string
		eventually(t, "after "+when+" a stream goes on", func() bool {
			err := s.Undisturbed(before)
			why = fmt.Sprint(err)
			return err == nil
		}, &why)
	}
}
