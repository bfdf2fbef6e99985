package world_test

import (
	"context"
	"testing"
	"time"

	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// TestPodsTalk checks the pods' connectivity as the demo does, also after a restart
// of the watcher, Open vSwitch, API server and kubelet.
func TestPodsTalk(t *testing.T) { podsTalk(t, world.Options{Minions: 1}) }

// The same with a watcher and a gateway helper in one process.
func TestPodsTalkWithRolesTogether(t *testing.T) {
	podsTalk(t, world.Options{Minions: 1, Together: true})
}

func podsTalk(t *testing.T, o world.Options) {
	require.Nothing(t, require.Cluster, world.Missing())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	bin, err := world.Build(ctx, world.Roles)
	check("building the programs", err)
	o.Log = func(line string) { t.Log(line) }
	w, err := world.New(ctx, o)
	check("making a world", err)
	defer w.Close()
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	check("installing the suite", w.Install(ctx, bin))
	check("starting kubelets", w.StartKubelets(ctx))
	var pods []world.Endpoint
	for name, node := range map[string]string{"a": "master", "b": "minion1", "c": "minion1"} {
		_, err := w.Kube.CreatePod(ctx, "default", name, node, nil)
		check("creating a pod", err)
		pod, err := w.AwaitPod(ctx, "default", name)
		check("running a pod", err)
		pods = append(pods, pod)
	}
	green := func(when string) {
		t.Helper()
		for _, attempt := range world.Try(ctx, world.Matrix(pods, pods)) {
			t.Errorf("%s: %v: %v", when, attempt, attempt.Err)
		}
	}
	green("after creation")
	check("killing the watcher", w.KillWatcher(ctx))
	w.Node("minion1").Kubelet.Stop()
	check("restarting OVS", w.Node("minion1").RestartOVS(ctx))
	check("restarting the API server", w.Kube.Restart(ctx))
	check("starting the watcher", w.StartWatcher(ctx))
	check("starting the kubelet", w.Node("minion1").Kubelet.Start(ctx))
	check("comparing", w.Check(ctx))
	green("after restarts")
}
