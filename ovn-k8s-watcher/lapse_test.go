package main

import (
	"strings"
	"syscall"
	"testing"
)

// T9: while the API server does not answer, gateways fail over and come back, and nothing else is written. After
// its return the watcher continues its work.
func TestGatewaysFailOverWithoutTheAPIServer(t *testing.T) {
	for _, tt := range []struct {
		name string
		away func() error
		back func(*testing.T) error
	}{
		{"killed", func() error { cluster.Kill(); return nil }, func(t *testing.T) error { return cluster.Restart(t.Context()) }},
		{"frozen", func() error { return cluster.Freeze() }, func(*testing.T) error { return cluster.Thaw() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			c := w.gateways(w.topology(map[string]string{"node1": "192.168.2.0/24"}), map[string]string{"gw1": "127.0.0.1", "gw2": "127.0.0.2"})
			p := w.start()
			w.pod("a", "node1", nil)
			a := w.annotation("a")
			both, alone := w.waysOut(), c.Gateways["gw1"].Join[0].String()
			if err := tt.away(); err != nil {
				t.Fatal(err)
			}
			gone := true
			t.Cleanup(func() {
				if gone {
					_ = tt.back(t)
				}
			})
			w.eventually("the Lease is lost", func() bool { return p.says(nowLapsed) == 1 })
			w.gateways(c, map[string]string{"gw2": "224.0.0.1"})
			w.eventually("the dead gateway is left", func() bool { return w.waysOut() == alone })
			w.gateways(c, map[string]string{"gw2": "127.0.0.2"})
			w.eventually("the gateway is used again", func() bool { return w.waysOut() == both && p.says("is alive again") == 1 })
			w.nbctl("lsp-set-addresses", "default_a", "unknown") // nothing but gateways is written
			w.gateways(c, map[string]string{"gw2": "224.0.0.1"})
			w.eventually("the dead gateway is left again", func() bool { return w.waysOut() == alone })
			if got := w.port("default_a", "addresses"); got != "unknown" {
				t.Errorf("a pod's port was written without the Lease: %s", got)
			}

			if err := tt.back(t); err != nil {
				t.Fatal(err)
			}
			gone = false
			w.eventually("the Lease is held again", func() bool { return p.says(nowRegained) == 1 })
			w.eventually("the port is mended", func() bool { return w.port("default_a", "addresses") == line(a) })
			w.pod("b", "node1", nil)
			if b := w.annotation("b"); line(b) == line(a) || line(w.annotation("a")) != line(a) {
				t.Errorf("pods have %s and %s", line(a), line(b))
			}
			if got := w.waysOut(); got != alone || p.says(nowActive) != 1 || p.says(nowInactive) != 0 {
				t.Errorf("ways out: %s; the engine was started %d times", got, p.says(nowActive))
			}
			if terms := w.oneWriterAtATime(); len(terms) != 1 {
				t.Errorf("terms: %v", terms)
			}
		})
	}
}

// T9, T1: a watcher without the Lease probes gateways until another one takes the term. Frozen at this moment, it
// writes nothing when it wakes up.
func TestTheTermOfALapsedWatcherEnds(t *testing.T) {
	w := newWorld(t, nil)
	c := w.gateways(w.topology(map[string]string{"node1": "192.168.2.0/24"}), map[string]string{"gw1": "127.0.0.1", "gw2": "127.0.0.2"})
	r := newRelay(t, w)
	first := w.start("--unixctl=" + w.dir + "/first.ctl")
	first.becomesActive(1, takeover)
	w.pod("a", "node1", nil)
	w.annotation("a") // all objects are read
	both := w.waysOut()
	r.lose(true)
	w.eventually("the Lease is lost", func() bool { return first.says(nowLapsed) == 1 })
	w.gateways(c, map[string]string{"gw2": "224.0.0.1"})
	w.eventually("the gateway is left", func() bool { return w.waysOut() != both })
	_ = first.cmd.Process.Signal(syscall.SIGSTOP)
	w.url = cluster.URL
	second := w.startAs("other-host")
	second.becomesActive(1, takeover)
	w.gateways(c, map[string]string{"gw2": "127.0.0.2"})
	w.eventually("the gateway is used again", func() bool { return w.waysOut() == both })
	_ = first.cmd.Process.Signal(syscall.SIGCONT)
	w.eventually("the first watcher has ended its term", func() bool { return first.says(nowInactive) == 1 })
	w.gateways(c, map[string]string{"gw2": "224.0.0.1"})
	w.eventually("the gateway is left", func() bool { return w.waysOut() != both })
	if terms := w.oneWriterAtATime(); len(terms) != 2 || !strings.HasPrefix(terms[1], "other-host/") {
		t.Errorf("terms: %v", terms)
	}
}
