package kube

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// People read which objects are missing and why, each reason once.
func TestAwaited(t *testing.T) {
	forbidden := func(kind string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("no right"))
	}
	for _, tt := range []struct {
		missing []string
		lost    map[string]error
		want    string
	}{
		{nil, nil, ""},
		{[]string{"pods", "nodes"}, nil, "nodes, pods: not read yet"},
		{[]string{"pods", "nodes", "services"}, map[string]error{"nodes": forbidden("nodes"), "services": forbidden("services")},
			"nodes, services: the API server refuses this host's token or rights: nodes is forbidden: no right; renew the token or the kubeconfig, or grant the rights; pods: not read yet"},
		{nil, map[string]error{"pods": errors.New("broken")}, "pods: broken"},
	} {
		missing := map[string]bool{}
		for _, kind := range tt.missing {
			missing[kind] = true
		}
		if got := Awaited(missing, tt.lost); got != tt.want {
			t.Errorf("missing %v, lost %v: %q, want %q", tt.missing, tt.lost, got, tt.want)
		}
	}
}
