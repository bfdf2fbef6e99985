package watcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/settings"
	"ovn-k8s/lib/watcher/registry"
	"ovn-k8s/lib/watcher/south"
)

// Check compares the database and the annotations with the objects of the API server, once, and prints the lines of
// Differences to out. It reports whether there was none.
func (w *Watcher) Check(ctx context.Context, out io.Writer) (bool, error) {
	sw, err := w.runtime().OptionalSwitch(ctx, w.log("watcher"))
	if err != nil {
		return false, err
	}
	if sw != nil {
		defer sw.Close()
	}
	cfg, err := w.runtime().Load(ctx, sw)
	if err != nil {
		return false, err
	}
	differences, err := w.Differences(ctx, settings.Session{Config: cfg})
	for _, d := range differences {
		fmt.Fprintln(out, d)
	}
	return len(differences) == 0, err
}

// Differences compares the database and the annotations with the objects of the API server, once, and returns each
// difference as a line. Lines start with + (missing), - (superfluous), ~ (different) or ! (a problem). It changes nothing,
// and may run beside an active watcher: the other's pending changes are differences.
func (w *Watcher) Differences(ctx context.Context, s settings.Session) ([]string, error) {
	cfg := s.Config
	l, err := w.connect(ctx, cfg, s.Token)
	if err != nil {
		return nil, err
	}
	defer l.cluster.Close()
	defer l.db.Close()
	e := w.newEngine(l, l.db)
	if tunnels := south.Tunnels(ctx, cfg, e.log); tunnels != nil {
		e.network.Put(tunnels)
	}
	err = e.load(ctx)
	if errors.Is(err, ErrNoClusterRouter) && w.Companion != nil {
		return w.Companion.Differences(ctx, w.companion(l, nil))
	}
	if err != nil {
		return nil, err
	}
	differences, err := e.differences()
	if err == nil && w.Companion != nil {
		var more []string
		more, err = w.Companion.Differences(ctx, w.companion(l, nil))
		differences = append(differences, more...)
	}
	differences = append(differences, south.Problems(ctx, cfg, e.log, e.network, e.records.PodPorts())...)
	if t, ok := settings.ReadToken(cfg); ok {
		if text := t.Problem(time.Now()); text != "" {
			differences = append(differences, "! "+text)
		}
	}
	return differences, err
}

// load fills the World once, without following anything.
func (e *engine) load(ctx context.Context) error {
	former, err := e.records.Former()
	if err != nil {
		return err
	}
	for _, fact := range former {
		e.network.Put(fact)
	}
	c, found, err := e.records.UsableTopology(e.log)
	if err != nil {
		return err
	}
	if !found {
		saved, err := registry.Read(ctx, e.connections.cluster, e.connections.copy())
		if err != nil {
			return err
		}
		if saved == nil {
			return ErrNoClusterRouter
		}
		c = *saved
	}
	e.network.Put(c)
	var events []kube.Event
	if events, err = e.connections.cluster.List(ctx, e.kinds...); err != nil {
		return err
	}
	for _, ev := range events {
		e.recordObjects(ev)
	}
	if err := e.records.CheckOwner(e.network.Facts().UID); err != nil {
		return err
	}
	e.worlds.Allocate()
	e.health.Watch()
	return nil
}

// differences lists the changes to be made by a watcher now.
func (e *engine) differences() ([]string, error) {
	want := map[nb.Unit][]nb.Row{}
	problems := map[nb.Unit]error{}
	for _, u := range e.all() {
		rows, err := e.worlds.Rows(u)
		want[u] = rows
		if err != nil {
			problems[u] = err
		}
	}
	changes, failed, err := e.applier.Plan(want)
	if err != nil {
		return nil, fmt.Errorf("comparing: %w", err)
	}
	maps.Copy(problems, failed)
	lines := describe(changes, problems, e.network)
	for _, l := range e.records.Unowned() {
		lines = append(lines, "! "+l)
	}
	return lines, nil
}

func describe(lines []string, problems map[nb.Unit]error, network ClusterWorld) []string {
	for _, u := range slices.Sorted(slices.Values(network.Units())) {
		if a, ok := network.Annotation(u); ok && !a.Written() {
			lines = append(lines, fmt.Sprintf("~ Pod %s annotation: %.200q for %q → %q for %q", a.Pod.Key, a.Pod.Annotation, a.Pod.AnnotationUID, a.Addresses.Annotation(), a.Pod.UID))
		}
	}
	for _, u := range slices.Sorted(slices.Values(network.Units())) {
		if problem := network.Mismatch(u); problem != nil {
			lines = append(lines, fmt.Sprintf("! %s: %v", u, problem))
		}
	}
	for _, u := range slices.Sorted(maps.Keys(problems)) {
		lines = append(lines, fmt.Sprintf("! %s: %v", u, problems[u]))
	}
	return lines
}
