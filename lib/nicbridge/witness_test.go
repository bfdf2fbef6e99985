package nicbridge

import (
	"context"
	"fmt"
	"testing"
	"time"

	"ovn-k8s/lib/nicbridge/witness"
)

// A TCP probe waits for a route, and for a neighbour longer than the kernel asks for its MAC: a switch may have to
// learn the new port. Nobody listens there: a refused connection is an answer.
func TestDialerWaits(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after string
		pause         time.Duration
	}{
		"for a route":     {"ip -n outside addr add 192.0.2.1/32 dev lo; ip -n outside link set lo up", "ip route add 192.0.2.1 dev eth0", time.Second / 2},
		"for a neighbour": {"ip route add 192.0.2.1 dev eth0", "ip -n outside link set lo up; ip -n outside addr add 192.0.2.1/32 dev lo", 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			script := func(text string) error {
				_, err := w.h.Script(t.Context(), text)
				return err
			}
			if err := script("set -e; ip addr add 198.18.0.1/24 dev eth0; ip -n outside addr add 198.18.0.2/24 dev eth0; " + tt.before); err != nil {
				t.Fatal(err)
			}
			later := make(chan error, 1)
			time.AfterFunc(tt.pause, func() { later <- script("set -e; " + tt.after) })
			ctx, cancel := context.WithTimeout(t.Context(), usual().askAfter)
			defer cancel()
			probes, err := witness.Probes("192.0.2.1:22", "")
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			err = probes[0].Ask(ctx)
			took := fmt.Sprintf("after %v", time.Since(began))
			if err != nil || time.Since(began) < tt.pause {
				t.Errorf("%s: %v", took, err)
			}
			if err := <-later; err != nil {
				t.Error(err)
			}
		})
	}
}
