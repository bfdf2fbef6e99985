// Package registry keeps a copy of the topology in a ConfigMap: an emptied Northbound database is restored from it.
package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

const (
	// Timeout bounds one try to write the copy.
	Timeout = 5 * time.Second
	// maxCopy is the maximum size of a ConfigMap, in bytes. 1 000 nodes with gateways need 279 kB.
	maxCopy = 1 << 20
	// maxKey is the length of its longest key.
	maxKey = validation.DNS1123SubdomainMaxLength
	// pausePerNode and maxPause bound the data written while nodes join, to about 30 kB/s: after a write, there is none for
	// a time that grows with the nodes.
	pausePerNode = 10 * time.Millisecond
	maxPause     = 10 * time.Second
)

// A Cluster has the ConfigMap.
type Cluster interface {
	// Leads reports whether the Lease is held.
	Leads() bool
	Warn(about runtime.Object, reason, message string)
	ReadConfigMap(ctx context.Context, name types.NamespacedName) (map[string]string, error)
	// WriteConfigMap returns the ConfigMap without data, for the next call; last is nil in the first one.
	WriteConfigMap(ctx context.Context, name types.NamespacedName, data map[string]string, last *corev1.ConfigMap) (*corev1.ConfigMap, error)
}

// A Copy is the state of the copy. Transactions do not wait for it. The goroutine that calls the functions of send owns
// it.
type Copy struct {
	cluster Cluster
	name    types.NamespacedName
	send    func(func() []nb.Unit)
	current func() (c topology.Cluster, write bool)

	saved *topology.Cluster     // the copy, as far as known
	jobs  chan topology.Cluster // holds one
	busy  bool                  // a job or the pause after it is under way; after it the topology is compared again
	err   error                 // of the last one
	told  bool                  // err was returned by Sync
	lost  bool                  // the database has no topology, and people know
	last  *corev1.ConfigMap     // as written, without data; it belongs to Run

	log      *logrus.Entry
	nodes    func() map[string]bool            // nil: nothing that the record lacks is kept
	found    bool                              // saved is the copy of an earlier run
	reread   bool                              // the record was read anew
	keep     atomic.Pointer[map[string]string] // lost keys; the map does not change
	present  atomic.Bool                       // the database has a topology
	bad      map[string]string                 // the copy of an earlier run, unreadable; it belongs to Read until Found
	toldBad  bool                              // people know of it
	toldLong string                            // the last text of tellLong; it belongs to Run
}

// An Unreadable is the error of Read about an unreadable copy.
type Unreadable struct{ error }

// Unwrap returns the reason.
func (u Unreadable) Unwrap() error { return u.error }

// ConfigMap has the copy of the topology in a namespace, to restore an emptied database.
func ConfigMap(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: names.TopologyConfigMap}
}

// New returns a Copy in the ConfigMap name. current returns the topology, and whether it may be copied now.
func New(cluster Cluster, name types.NamespacedName, send func(func() []nb.Unit), current func() (c topology.Cluster, write bool)) *Copy {
	return &Copy{cluster: cluster, name: name, send: send, current: current, jobs: make(chan topology.Cluster, 1)}
}

// Found records the copy of an earlier run.
func (y *Copy) Found(saved *topology.Cluster) { y.saved, y.found = saved, true }

// Restoring tells, in the log and by an Event about the ConfigMap, of a database without a topology, which is given one
// of so many nodes: once until Present.
func (y *Copy) Restoring(log *logrus.Entry, nodes int) {
	if y.lost {
		return
	}
	y.lost = true
	y.present.Store(false)
	text := fmt.Sprintf("the Northbound database has no cluster router: restoring the topology of %d nodes", nodes)
	log.Warn(text)
	y.event("TopologyRestored", text)
}

// event writes an Event about the ConfigMap.
func (y *Copy) event(reason, text string) {
	y.cluster.Warn(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: y.name.Namespace, Name: y.name.Name}}, reason, text)
}

// Present records that the database has a topology. anew reports whether its record is the first one read over a connection:
// changes between two connections are not known.
func (y *Copy) Present(anew bool) {
	y.lost, y.reread = false, y.reread || anew
	y.present.Store(true)
}

// Read is the function Read. It keeps what earlier records lack, too. While the database has a topology, a copy that
// cannot be parsed is none, and what differs in it is kept.
func (y *Copy) Read(ctx context.Context) (*topology.Cluster, error) {
	c, data, err := read(ctx, y.cluster, y.name)
	unreadable := errors.As(err, new(Unreadable))
	if unreadable {
		y.tellUnreadable(err)
	}
	if unreadable && y.present.Load() {
		y.bad, err = withoutLost(data), nil
	}
	if lost := lostOf(data); err == nil {
		y.keep.Store(&lost)
	}
	return c, err
}

// Read reads the copy, nil if there is none. The error is an Unreadable if it cannot be parsed.
func Read(ctx context.Context, cluster Cluster, name types.NamespacedName) (*topology.Cluster, error) {
	c, _, err := read(ctx, cluster, name)
	return c, err
}

func read(ctx context.Context, cluster Cluster, name types.NamespacedName) (*topology.Cluster, map[string]string, error) {
	data, err := cluster.ReadConfigMap(ctx, name)
	if err != nil || data == nil {
		return nil, nil, err
	}
	c, err := topology.ReadRegistry(data)
	if err != nil {
		return nil, data, Unreadable{fmt.Errorf("reading ConfigMap %s: %w", name, err)}
	}
	return &c, data, nil
}

// unsaved returns the topology if it differs from its copy.
func (y *Copy) unsaved() *topology.Cluster {
	c, write := y.current()
	if !write || c.Router == "" || y.nodes != nil && !y.found {
		return nil
	}
	if y.saved != nil && y.saved.Equal(c) {
		y.saved, y.reread = &c, false // the next comparison with itself costs nothing
		return nil
	}
	if y.reread {
		y.lack(c)
	}
	return &c
}

// Sync starts a copy of the topology if it differs from the last one. It returns the error of the last try,
// once and with each later try. These come with a dirty unit of the cluster.
func (y *Copy) Sync(dirty []nb.Unit) error {
	c, tried := y.unsaved(), slices.Contains(dirty, topology.ClusterUnit)
	switch {
	case c == nil || y.err != nil && !tried:
		return nil
	case y.err != nil && !y.told:
		y.told = true
	case !y.busy:
		y.lack(*c)
		y.busy = true
		y.jobs <- *c
	}
	return y.err
}

// Run writes copies until ctx ends. A single change is written at once. The ones during the pause after a write are
// written together at its end; if ctx ends before, the next process writes them.
func (y *Copy) Run(ctx context.Context) {
	for {
		var wait time.Duration
		select {
		case <-ctx.Done():
			return
		case c := <-y.jobs:
			wait = min(maxPause, time.Duration(len(c.Nodes))*pausePerNode)
			err := y.save(ctx, c)
			y.send(func() []nb.Unit { return y.copied(c, err) })
			if err != nil {
				continue // the engine's next try comes later and later
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			y.send(y.rested)
		}
	}
}

// copied records the end of a job.
func (y *Copy) copied(c topology.Cluster, err error) []nb.Unit {
	before := y.err
	y.busy, y.err, y.told = err == nil, err, false // rested follows
	if err == nil {
		y.saved = &c
	}
	if err != nil || before != nil {
		return []nb.Unit{topology.ClusterUnit}
	}
	return nil
}

// rested records the end of the pause after a job.
func (y *Copy) rested() []nb.Unit {
	y.busy = false
	if y.unsaved() != nil {
		return []nb.Unit{topology.ClusterUnit}
	}
	return nil
}

// save copies the topology to the API server, where it survives the database.
func (y *Copy) save(ctx context.Context, c topology.Cluster) error {
	if !y.cluster.Leads() {
		return context.Canceled // it is tried again once the Lease is held
	}
	data, long, err := copyOf(y.name, c, y.kept())
	if err != nil {
		return err
	}
	y.tellLong(long)
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	y.last, err = y.cluster.WriteConfigMap(ctx, y.name, data, y.last)
	return err
}

// copyOf is the data of the ConfigMap, or an error if it would be too large. long are the keys too long for it.
func copyOf(name types.NamespacedName, c topology.Cluster, lost map[string]string) (data map[string]string, long []string, err error) {
	data, size := withLost(c.Registry(), lost), 0
	for k, v := range data {
		if len(k) > maxKey {
			long = append(long, k)
			delete(data, k)
			continue
		}
		size += len(k) + len(v)
	}
	if size > maxCopy {
		return nil, nil, fmt.Errorf("ConfigMap %s takes %d bytes, and the copy of the topology has %d: an emptied Northbound database cannot be restored; back up its file, or remove nodes and gateways that are gone by node-remove and gateway-remove", name, maxCopy, size)
	}
	return data, long, nil
}
