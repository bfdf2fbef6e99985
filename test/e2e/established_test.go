package e2e

import (
	"fmt"
	"testing"
	"time"

	"ovn-k8s/test/probe"
)

// onlyB lets only the pods b of any namespace reach x/a.
const onlyB = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: only-b, namespace: x}
spec: {podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {pod: b}}}]}]}
`

// Connections that a new policy forbids are cut within two seconds; those that
// it allows go on, whatever other policies come and go.
func TestEstablishedConnections(t *testing.T) {
	y := newYard(t)
	open := func(from string) *probe.Session {
		t.Helper()
		s, err := probe.OpenSession(t.Context(), y.pods[from].Netns, probe.Address(y.pods["x/a"].Addresses[0], 80))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	cut, kept := open("w/a"), open("w/b")
	time.Sleep(300 * time.Millisecond) // of typing
	if err := cluster.Kube.Apply(t.Context(), []byte(onlyB)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	last := cut.Typed().Lines
	for quiet := start; time.Since(quiet) < 500*time.Millisecond && time.Since(start) < patience; time.Sleep(10 * time.Millisecond) {
		if now := cut.Typed().Lines; now != last {
			last, quiet = now, time.Now()
		}
	}
	if took := time.Since(start) - 500*time.Millisecond; took > 2*time.Second {
		t.Errorf("the connection that is forbidden was cut after %s", took)
	} else {
		t.Logf("cut after %s", took)
	}
	before := kept.Typed()
	for i := range 100 {
		policy := fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: other-%d, namespace: w}\nspec: {podSelector: {matchLabels: {app: other-%d}}, ingress: [{}]}\n", i, i)
		if err := cluster.Kube.Apply(t.Context(), []byte(policy)); err != nil {
			t.Fatal(err)
		}
	}
	dropPolicies(t, "w")
	time.Sleep(time.Second) // until the last one works
	if err := kept.Undisturbed(before); err != nil {
		t.Error(err)
	}
	if now := cut.Typed().Lines; now != last {
		t.Errorf("the connection that is forbidden had %d more answers", now-last)
	}
	t.Logf("kept: %+v", kept.Close())
	dropPolicies(t, "x")
	eventually(t, "what is allowed again goes on", func() bool { return cut.Typed().Lines > last })
	cut.Close()
}
