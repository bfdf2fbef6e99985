package watcher

import (
	"context"
	"fmt"
	"slices"
	"time"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// copying is the state of the copy of the topology in the ConfigMap. Transactions do not wait for it.
type copying struct {
	jobs chan topology.Cluster // holds one
	busy bool                  // a job is under way; after it the topology is compared again
	err  error                 // of the last one
	told bool                  // err was returned by copyTopology
}

const (
	// saveTimeout bounds one try to write the copy.
	saveTimeout = 5 * time.Second
	// maxCopy is the maximum size of a ConfigMap, in bytes. 1 000 nodes with gateways need 279 kB.
	maxCopy = 1 << 20
)

// unsavedTopology returns the topology if it differs from its copy.
func (e *engine) unsavedTopology() *topology.Cluster {
	c := e.world.Facts().Cluster
	if !e.writesAll() || c.Router == "" {
		return nil
	}
	if e.saved != nil && e.saved.Equal(c) {
		e.saved = &c // the next comparison with itself costs nothing
		return nil
	}
	return &c
}

// copyTopology starts a copy of the topology if it differs from the last one. It returns the error of the last try,
// once and with each later try. These come with a dirty unit of the cluster.
func (e *engine) copyTopology(dirty []nb.Unit) error {
	c, tried := e.unsavedTopology(), slices.Contains(dirty, topology.ClusterUnit)
	switch {
	case c == nil || e.copying.err != nil && !tried:
		return nil
	case e.copying.err != nil && !e.copying.told:
		e.copying.told = true
	case !e.copying.busy:
		e.copying.busy = true
		e.copying.jobs <- *c
	}
	return e.copying.err
}

// copyTopologies writes copies until ctx ends.
func (e *engine) copyTopologies(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-e.copying.jobs:
			err := e.saveTopology(ctx, c)
			e.send(func() []nb.Unit { return e.copied(c, err) })
		}
	}
}

// copied records the end of a job.
func (e *engine) copied(c topology.Cluster, err error) []nb.Unit {
	before := e.copying.err
	e.copying.busy, e.copying.err, e.copying.told = false, err, false
	if err == nil {
		e.saved = &c
	}
	if err != nil || before != nil || e.unsavedTopology() != nil {
		return []nb.Unit{topology.ClusterUnit}
	}
	return nil
}

// saveTopology copies the topology to the API server, where it survives the database.
func (e *engine) saveTopology(ctx context.Context, c topology.Cluster) error {
	if !e.links.cluster.Leads() {
		return context.Canceled // it is tried again once the Lease is held
	}
	data, err := copyOf(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	return e.links.cluster.WriteConfigMap(ctx, topologyCopy, data)
}

// copyOf is the data of the ConfigMap, or an error if it would be too large.
func copyOf(c topology.Cluster) (map[string]string, error) {
	data, size := c.Registry(), 0
	for k, v := range data {
		size += len(k) + len(v)
	}
	if size > maxCopy {
		return nil, fmt.Errorf("ConfigMap %s takes %d bytes, and the copy of the topology has %d: an emptied Northbound database cannot be restored; back up its file, or remove nodes and gateways that are gone by node-remove and gateway-remove", topologyCopy, maxCopy, size)
	}
	return data, nil
}
