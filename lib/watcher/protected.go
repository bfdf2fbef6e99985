package watcher

import (
	"context"
	"time"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/ovsdb"
)

// protected are the addresses of the API server and the databases in the configuration.
func protected(c config.Config) facts.Protected {
	c.EncapIP = "" // this host's own
	out := facts.Protected{}
	for _, h := range c.Hosts() {
		out[h.Addr] = "the address of " + h.Setting
	}
	return out
}

// southTimeout bounds the time to wait for the Southbound database in a comparison.
const southTimeout = 5 * time.Second

// loadTunnels reads the tunnel addresses of hosts once. Without a Southbound database they stay unknown.
func (e *engine) loadTunnels(ctx context.Context) {
	if e.links.config.OVNRemote == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, southTimeout)
	defer cancel()
	sb, err := ovsdb.OpenSouth(ctx, e.links.config, nil)
	if err != nil {
		e.log.Warnf("comparing without the Southbound database: %v", err)
		return
	}
	defer sb.Close()
	e.world.Put(facts.Tunnels(sb.Tunnels()))
}
