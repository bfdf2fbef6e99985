package watcher

import (
	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/facts"
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
