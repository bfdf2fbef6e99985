// Package kinds tests the table of kinds in lib/kube: by LIST and by WATCH, by the fields read by features, with
// several roles in one process, and with a kind of the test alone.
package kinds

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/kube"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/require"
)

// cluster is the control plane of all tests; nil if the machine has none.
var cluster *kubetest.Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if kubetest.Missing() == "" {
		var err error
		options := kubetest.Options{Without: []string{"kube-scheduler"}, Log: func(l string) { fmt.Fprintln(os.Stderr, l) }}
		if cluster, err = kubetest.Start(context.Background(), options); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer cluster.Close()
	}
	return m.Run()
}

// patience bounds every wait.
const patience = time.Minute

func needCluster(t *testing.T) {
	t.Helper()
	require.Nothing(t, require.Cluster, kubetest.Missing())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func silent() *logrus.Entry {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return logrus.NewEntry(log)
}

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// now deletes objects at once.
var now = metav1.DeleteOptions{GracePeriodSeconds: new(int64)}

func accessor(o any) metav1.Object {
	m, err := meta.Accessor(o)
	if err != nil {
		panic(err)
	}
	return m
}

func nameOf(o any) string { return accessor(o).GetName() }

func key(k kube.Kind, o any) string {
	return k.Name + "/" + accessor(o).GetNamespace() + "/" + nameOf(o)
}
