package cniserver

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ovn-k8s/lib/kube"
)

// Only an API server that refuses the list makes a host unable to serve pods. One that is away returns.
func TestRefused(t *testing.T) {
	away := errors.New("connection refused")
	forbidden := fmt.Errorf("failed to list pods: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no role")))
	for name, c := range map[string]struct {
		listed  bool
		lost    error
		refused bool
	}{
		"at the start":                {false, nil, false},
		"never connected":             {false, away, false},
		"never permitted":             {false, forbidden, true},
		"no longer permitted":         {true, forbidden, false},
		"disconnected after the list": {true, away, false},
	} {
		p := NewPods()
		if c.listed {
			p.record(kube.Event{Replace: true, Objects: func(func(any) bool) {}})
		}
		if c.lost != nil {
			p.setLost(c.lost)
		}
		if err := p.Refused(); (err != nil) != c.refused || c.refused && !errors.Is(err, c.lost) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
