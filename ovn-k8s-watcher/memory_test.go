package main

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// After most pods were deleted, the watcher reads the database again, to release their memory. It writes nothing
// for it, and continues its work.
func TestMostPodsGo(t *testing.T) {
	w := newWorld(t, manyNodes())
	p := w.start()
	const pods = 1200
	ports := func() int {
		return strings.Count(w.nbctl("--columns=name", "find", "Logical_Switch_Port", "type=\"\""), "name")
	}
	others := ports()
	w.burst(0, pods)
	w.eventually("all pods have ports", func() bool { return ports() == others+pods })
	lines := len(p.complaints())
	now := int64(0)
	err := cluster.Client().CoreV1().Pods("default").DeleteCollection(context.Background(), metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("no pod has a port", func() bool { return ports() == others })
	before, err := w.central.NBTransactions()
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("the database is read again", func() bool {
		return strings.Contains(p.log.String(), "reading the Northbound database again")
	})
	w.burst(0, 1)
	w.settled(1)
	if after, err := w.central.NBTransactions(); err != nil || after != before+1 {
		t.Errorf("reading and one pod took %d transactions (%v), want 1", after-before, err)
	}
	if said := p.complaints(); len(said) > lines {
		t.Errorf("the watcher complains: %s", said[lines:])
	}
}
