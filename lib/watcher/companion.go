package watcher

import (
	"context"
	"errors"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/settings"
	"ovn-k8s/lib/watcher/registry"
)

// A Companion makes the topology that a watcher follows, in the same process. Without one, commands do.
type Companion interface {
	// Check returns an error that keeps the watcher from starting. Waiting does not cure one marked by settings.Wrong. It is
	// called before the watcher is ready, with the copy of the topology; nil: there is none. unread is why that is unknown, and
	// then the error if Check cannot decide.
	Check(l Links, saved *topology.Cluster, unread error) error
	// Begin is called at the begin of a term, before the watcher writes anything, until it succeeds or returns an error
	// marked by settings.Wrong.
	Begin(ctx context.Context, l Links) error
	// Differences returns what Begin and Run would change now, one a line, as Watcher.Differences does.
	Differences(ctx context.Context, l Links) ([]string, error)
	// Run works until ctx ends, while the watcher leads and holds the Lease.
	Run(ctx context.Context, l Links)
}

// Links are the connections of a watcher, for its Companion.
type Links struct {
	Config  config.Config
	DB      *ovsdb.DB   // to read
	Term    *ovsdb.Term // to write; nil for Check and Differences
	Cluster *kube.Cluster
	Log     func(module string) *logrus.Entry
	// OnUp has a function called after each new connection of DB, until stop: changes between two connections are not
	// reported.
	OnUp func(f func()) (stop func())
}

// Copy reads the copy of the topology, nil if there is none.
func (l Links) Copy(ctx context.Context) (*topology.Cluster, error) {
	return registry.Read(ctx, l.Cluster, registry.ConfigMap(l.Config.ConfigNamespace))
}

// companion are the links for the Companion.
func (w *Watcher) companion(c *connections, term *ovsdb.Term) Links {
	return Links{c.config, c.db, term, c.cluster, w.log, w.onUpOf}
}

// onUpOf is Links.OnUp, for one function at a time.
func (w *Watcher) onUpOf(f func()) (stop func()) {
	w.companionUp.Store(&f)
	return func() { w.companionUp.CompareAndSwap(&f, nil) }
}

// prepare lets the Companion begin a term.
func (t *tenure) prepare(ctx context.Context, term *ovsdb.Term) (err error) {
	c := t.w.Companion
	if c == nil {
		return nil
	}
	var other error
	err = kube.Retry(ctx, func() error {
		other = nil
		err := c.Begin(ctx, t.w.companion(t.connections, term))
		if settings.IsWrong(err) || errors.Is(err, ovsdb.ErrDeposed) {
			other = err
			return nil
		}
		return err
	}, kube.Again(t.log, ""))
	if other != nil {
		return other
	}
	return err
}

// accompany runs the Companion until ctx ends. wait waits for its end.
func (t *tenure) accompany(ctx context.Context, term *ovsdb.Term) (wait func()) {
	c := t.w.Companion
	if c == nil {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx, t.w.companion(t.connections, term))
	}()
	return func() { <-done }
}
