package watcher

import (
	"context"
	"maps"
	"time"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/ovsdb"
)

// downInterval is the interval of reading the ports that are down. A pod counts as disconnected if its port is down
// twice in a row: those of starting and ending pods are down for a moment.
const downInterval = 15 * time.Second

// followDown writes an Event about each running pod without an interface, until ctx ends.
func (e *engine) followDown(ctx context.Context, sb *ovsdb.DB) {
	ticker := time.NewTicker(downInterval)
	defer ticker.Stop()
	var before map[string]bool
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		down, err := sb.PortsDown(ctx)
		if err != nil { // serveSouth logs the reason
			before = nil
			continue
		}
		still := maps.Clone(down)
		maps.DeleteFunc(still, func(port string, _ bool) bool { return !before[port] })
		before = down
		e.send(func() []nb.Unit {
			e.tellDisconnected(still)
			return nil
		})
	}
}

// tellDisconnected writes an Event about each running pod with a port that is down, once. The log names the first
// one.
func (e *engine) tellDisconnected(down map[string]bool) {
	now, told := map[nb.Unit]bool{}, 0
	for _, p := range e.world.Disconnected(down) {
		if e.disconnected[p.Unit] {
			now[p.Unit] = true
			continue
		}
		if told == mismatchBatch {
			continue // next time
		}
		now[p.Unit] = true
		if told++; told == 1 {
			e.log.WithField("unit", p.Unit).Warn(p.Problem)
		}
		e.tell(p.Unit, p.Problem)
	}
	if told > 1 {
		e.log.WithField("pods", told).Warn("more pods run without an interface: \"" + Program + " --check\" names them")
	}
	e.disconnected = now
}
