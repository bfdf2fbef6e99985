// Package master is the master of ovnkube: a watcher that also gives the nodes of the cluster their subnets, and takes
// their hosts' chassis and gateways into the topology. It does for all nodes together the database's part of minion-init,
// gateway-init and node-remove.
package master

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/desired/nodes"
	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/overlay/store"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/settings"
	"ovn-k8s/lib/watcher"
)

// Settings are the master's own settings.
type Settings struct {
	Ranges nodesubnet.Ranges // of the cluster
	// Adopt takes over a cluster with nodes made by commands, or by an older release.
	Adopt bool
}

// New returns a watcher that is a master. of returns the settings in a configuration. accepted is called when the master has
// not refused the cluster it found; nil: it is not called. Watcher.Role is the master as a role of a process.
func New(o watcher.Options, of func(config.Config) Settings, accepted func()) *watcher.Watcher {
	o.Companion = &companion{of, accepted, former{}}
	return &watcher.Watcher{Options: o}
}

// A companion implements watcher.Companion.
type companion struct {
	settings func(config.Config) Settings
	accepted func()
	former   former // of Begin, for Run
}

// numbering is the request to give nodes their subnets.
func (m *companion) numbering(c config.Config) (membership.Numbering, error) {
	s := m.settings(c)
	return membership.Numbering{Program: names.Ovnkube, Ranges: s.Ranges, Join: c.GivenJoin(), Adopt: s.Adopt}, s.Ranges.Check(c.ServiceCIDRs, c.JoinSubnets)
}

// Check implements watcher.Companion: it refuses clusters of others, and ranges that lack the subnets of nodes. Without a cluster
// to take over, it waits for one.
func (m *companion) Check(l watcher.Links, saved *topology.Cluster, unread error) error {
	n, err := m.numbering(l.Config)
	if err != nil {
		return settings.Wrong(err)
	}
	s, err := read(l.DB)
	if err != nil {
		switch disconnected := errors.Is(err, ovsdb.ErrNotConnected); {
		case disconnected && unread != nil:
			return unread
		case disconnected:
			return err
		}
		return settings.Wrong(err)
	}
	if saved != nil {
		s = s.WithCopy(*saved)
	}
	switch nothing := n.NothingToAdopt(s); {
	case nothing && unread != nil:
		return fmt.Errorf("looking for the copy of a cluster to take over: %w", unread)
	case nothing:
		return nothingToAdopt(l)
	}
	if _, err := n.Begin()(s); err != nil {
		return settings.Wrong(err)
	}
	if m.accepted != nil {
		m.accepted()
	}
	return nil
}

// nothingToAdopt is the error if NothingToAdopt is true.
func nothingToAdopt(l watcher.Links) error {
	return fmt.Errorf("there is no cluster to take over: the Northbound database has no cluster router, and the ConfigMap %s/%s is missing: if the database was emptied, stop ovnkube, and let ovn-k8s-watcher run until there is one, "+
		"as it has its own copy; for a new cluster remove --adopt", l.Config.ConfigNamespace, names.TopologyConfigMap)
}

// read finds the topology in the copy of the database.
func read(db *ovsdb.DB) (membership.State, error) {
	rows := db.Cache()
	if rows == nil {
		return membership.State{}, fmt.Errorf("reading the Northbound database: %w", ovsdb.ErrNotConnected)
	}
	return store.Read(rows)
}

// readOrCopy finds the topology in the copy of the database, or in the ConfigMap with its copy if the database has none.
func readOrCopy(ctx context.Context, l watcher.Links) (membership.State, error) {
	s, err := read(l.DB)
	if err != nil || s.Router != nil {
		return s, err
	}
	saved, err := l.Copy(ctx)
	if err == nil && saved != nil {
		s = s.WithCopy(*saved)
	}
	return s, err
}

// Begin implements watcher.Companion: it makes the cluster router and the join switch, or takes over the existing ones.
// If the database was emptied, it writes the topology of the copy again.
func (m *companion) Begin(ctx context.Context, l watcher.Links) error {
	n, err := m.numbering(l.Config)
	if err != nil {
		return settings.Wrong(err)
	}
	s, err := readOrCopy(ctx, l)
	if err != nil {
		return err
	}
	if n.NothingToAdopt(s) {
		return settings.Wrong(nothingToAdopt(l))
	}
	after, err := n.Begin()(s)
	if err != nil {
		return settings.Wrong(err)
	}
	if err := s.Unfit(); err != nil {
		l.Log("master").Errorf("gateways of the record are left out: %v", err)
	}
	if n.Adopts(s) {
		removed, err := removeClaims(ctx, l)
		if err != nil {
			return err
		}
		maps.Copy(m.former, removed)
	}
	changes, err := store.Commit(ctx, &nbsync.Sync{DB: l.Term}, s.Router, membership.Rows(s.Topology(), after, topology.ClusterUnit))
	if err == nil && len(changes) > 0 {
		l.Log("master").WithField("nodes", len(after.Nodes)).Infof("gives the nodes of this cluster subnets of %s", ipnet.Join(n.Ranges))
	}
	return err
}

// Differences implements watcher.Companion.
func (m *companion) Differences(ctx context.Context, l watcher.Links) ([]string, error) {
	n, err := m.numbering(l.Config)
	if err != nil {
		return nil, settings.Wrong(err)
	}
	s, err := readOrCopy(ctx, l)
	if err != nil {
		return nil, err
	}
	switch {
	case n.NothingToAdopt(s):
		return nil, nothingToAdopt(l)
	case s.Nothing():
		return []string{"! the Northbound database has no cluster router, and there is no copy of one: does a master run?"}, nil
	}
	record, err := n.Begin()(s)
	if err != nil {
		return nil, settings.Wrong(err)
	}
	all, err := l.Cluster.ListOn(ctx, kube.KindOf(&corev1.Node{}), "")
	if err != nil {
		return nil, err
	}
	x := nodes.New(n.Ranges, record, s.OlderJoin())
	if n.Adopts(s) {
		all.Objects = each(all.Objects, withoutClaim)
	}
	x.Replace(all.Objects)
	return x.Next(x.All(), nil).Lines(), nil
}

// Run implements watcher.Companion.
func (m *companion) Run(ctx context.Context, l watcher.Links) {
	n, err := m.numbering(l.Config)
	if err != nil {
		return // Begin has failed
	}
	(&numberer{links: l, log: l.Log("master"), ranges: n.Ranges, former: m.former}).run(ctx)
}
