package south

import (
	"context"
	"maps"
	"time"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/ovsdb/southbound"
)

// downInterval is the interval of reading the ports that are down. A pod counts as disconnected if its port is down
// twice in a row: those of starting and ending pods are down for a moment.
const downInterval = 15 * time.Second

// followDown hands over the ports that are down twice in a row, until ctx ends.
func (f *Follower) followDown(ctx context.Context, sb *southbound.DB) {
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
		if err != nil { // serve logs the reason
			before = nil
			continue
		}
		still := maps.Clone(down)
		maps.DeleteFunc(still, func(port string, _ bool) bool { return !before[port] })
		before = down
		f.Send(func() []nb.Unit {
			f.Down(still)
			return nil
		})
	}
}
