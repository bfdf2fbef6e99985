package nicbridge

import (
	"math/rand/v2"
	"strings"
	"testing"

	"ovn-k8s/lib/link/ifstate"
)

// configure gives the host a random configuration from a seed.
func (w *world) configure(seed uint64) []string {
	w.t.Helper()
	w.reset()
	c := &configuration{r: rand.New(rand.NewPCG(seed, 0))}
	c.randomize()
	i, err := ifstate.Find("eth0")
	if err == nil {
		err = ifstate.SetOffloads(i, map[string]bool{"rx-gro": c.chance(50)})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	_ = w.batch(c.lines) // some lines exclude each other
	return c.lines
}

func TestRandomConfigurationsComeBackIdentical(t *testing.T) {
	const parallel = 6
	configurations := 200
	if testing.Short() {
		configurations = 30
	}
	lanes(t, parallel, func(w *world, lane int) {
		for seed := lane; seed < configurations; seed += parallel {
			lines := w.configure(uint64(seed))
			before := w.state()
			for _, d := range []Direction{ToBridge, ToNIC} {
				if err := w.move(d); err != nil {
					w.t.Errorf("seed %d: %s: %v", seed, d, err)
				}
			}
			w.same("after a round trip", before, w.state())
			if w.t.Failed() {
				w.t.Fatalf("seed %d:\n%s", seed, strings.Join(lines, "\n"))
			}
		}
	})
}
