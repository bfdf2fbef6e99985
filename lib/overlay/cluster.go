package overlay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/ovn-kubernetes/libovsdb/cache"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/settings"
)

// A world is the topology in the Northbound database.
type world struct {
	router   *nbdb.LogicalRouter     // the cluster router; nil if there is none
	join     *nbdb.LogicalRouterPort // the router's port to the join switch, or nil
	switches []nbdb.LogicalSwitch
	ports    []nbdb.LogicalSwitchPort
	// routerPorts are the ports of all routers.
	routerPorts []nbdb.LogicalRouterPort
	// record parses the router's record, once. It is nil without a router.
	record func() (topology.Cluster, error)
	// few are the rows of one node if only these were read (readNode), or nil.
	few *ovsdb.Rows
}

// recorded reports whether the router carries our record of the topology. A router of the Python era does not.
func (w world) recorded() bool {
	return w.router != nil && w.router.ExternalIDs[names.ID] == names.ClusterRouter
}

// A clusterChange computes the desired topology from the present one. It is called again after a conflict with
// another client.
type clusterChange func(world) (topology.Cluster, error)

// rows returns the desired rows of the cluster's unit, of unit, and of each gateway changed since before. Without a
// router it returns the rows of unit only.
func rows(before, c topology.Cluster, unit nb.Unit) map[nb.Unit][]nb.Row {
	want := map[nb.Unit][]nb.Row{unit: unitRows(c, unit)}
	if c.Router == "" {
		return want
	}
	want[topology.ClusterUnit] = c.Rows()
	if node, ok := topology.NodeOf(unit); ok && c.Nodes[node] == nil {
		want[topology.HostUnit(node)] = nil
	}
	for _, node := range before.NodeNames() { // a node that lost a family, for example
		if c.Nodes[node] != nil && !slices.Equal(before.Nodes[node], c.Nodes[node]) {
			want[topology.NodeUnit(node)] = c.NodeRows(node)
		}
	}
	for _, name := range topology.ChangedGateways(before, c) {
		u := topology.GatewayUnit(name)
		if now := unitRows(c, u); fmt.Sprint(unitRows(before, u)) != fmt.Sprint(now) {
			want[u] = now
		}
	}
	return want
}

// unitRows returns the desired rows of a node or gateway.
func unitRows(c topology.Cluster, u nb.Unit) []nb.Row {
	if node, ok := topology.NodeOf(u); ok {
		return c.NodeRows(node)
	}
	gateway, _ := topology.GatewayOf(u)
	return slices.Concat(c.GatewayRows(gateway), c.GatewayRoutes(gateway))
}

// before returns the recorded topology.
func (w world) before() topology.Cluster {
	if !w.recorded() {
		return topology.Cluster{}
	}
	c, _ := w.record() // an invalid record counts as none
	return c
}

// readWorld reads the topology from the copy of the database, or with s.only the rows of that node.
func (s *session) readWorld(ctx context.Context) (world, error) {
	if w := s.read; w != nil {
		s.read = nil
		return *w, nil
	}
	if s.only != "" {
		return s.readNode(ctx)
	}
	c := s.nb.Client()
	if c == nil || c.Cache() == nil {
		return world{}, fmt.Errorf("reading the Northbound database: %w", ovsdb.ErrNotConnected)
	}
	return newWorld(c.Cache())
}

// newWorld finds the topology in rows.
func newWorld(c *cache.TableCache) (world, error) {
	w := world{
		switches:    list[nbdb.LogicalSwitch](c, nbdb.LogicalSwitchTable),
		ports:       list[nbdb.LogicalSwitchPort](c, nbdb.LogicalSwitchPortTable),
		routerPorts: list[nbdb.LogicalRouterPort](c, nbdb.LogicalRouterPortTable),
	}
	routers := slices.DeleteFunc(list[nbdb.LogicalRouter](c, nbdb.LogicalRouterTable), func(r nbdb.LogicalRouter) bool {
		ids := r.ExternalIDs
		return ids[names.ClusterRouterTag] != "yes" && ids[names.ID] != names.ClusterRouter && r.Name != names.ClusterRouter
	})
	if len(routers) > 1 {
		list := make([]string, len(routers))
		for i, r := range routers {
			list[i] = fmt.Sprintf("%s (%s)", r.Name, r.UUID)
		}
		slices.Sort(list)
		return w, fmt.Errorf("there are %d cluster routers, %s: delete all but one, or take external_ids:%s away from them",
			len(routers), strings.Join(list, " and "), names.ClusterRouterTag)
	}
	if len(routers) == 0 {
		return w, nil
	}
	w.router = &routers[0]
	for i, p := range w.routerPorts {
		if p.Name == names.RouterToJoin(w.router.Name) {
			w.join = &w.routerPorts[i]
		}
	}
	w.record = sync.OnceValues(func() (topology.Cluster, error) { return topology.FromRouter(w.router, w.join, nil) })
	return w, nil
}

// list returns the rows of a table. Maps, slices and pointers in them are shared with c.
func list[T any](c *cache.TableCache, table string) []T {
	var out []T
	for _, m := range c.Table(table).RowsShallow() {
		out = append(out, *any(m).(*T))
	}
	return out
}

// join returns the change to add r's node to the cluster.
func (s *session) join(r request, minion bool, leave leaver) clusterChange {
	find := s.clusterForMaster
	if minion {
		find = s.clusterForMinion
	}
	return func(w world) (topology.Cluster, error) {
		c, err := find(w, r)
		if err != nil {
			return c, err
		}
		err = taken(w, c, r)
		c, problem := c.WithNode(r.node, r.subnets)
		if c = c.WithNodeOnChassis(r.node, s.config.SystemID); problem == nil && s.config.SystemID != "" {
			c = c.WithChassis(r.node, s.config.SystemID)
		}
		if err = errors.Join(problem, err); err == nil {
			err = leave(w, c)
		}
		return c, err
	}
}

// clusterForMinion requires an existing cluster with the subnets of r.
func (s *session) clusterForMinion(w world, r request) (topology.Cluster, error) {
	if w.router == nil {
		return topology.Cluster{}, errNoRouter
	}
	c, err := s.existing(w, r.clusters)
	if err == nil && !slices.Equal(c.Subnets, r.clusters) {
		err = fmt.Errorf("--cluster-ip-subnet is %s, but the cluster's is %s: give the same, or change it by master-init", ipnet.Join(r.clusters), ipnet.Join(c.Subnets))
	}
	return c, err
}

// clusterForMaster makes a cluster, or gives the existing one the subnets of r.
func (s *session) clusterForMaster(w world, r request) (topology.Cluster, error) {
	if w.router == nil {
		return topology.New(names.ClusterRouter, r.clusters, s.config.JoinSubnets)
	}
	c, err := s.existing(w, r.clusters)
	if err != nil {
		return c, err
	}
	others, _ := c.WithoutNode(r.node) // r.node may move into the new subnets
	return others.Resize(r.clusters, s.joinSubnets(c))
}

// existing reads the existing cluster. A router without a record of subnets gets the given ones.
func (s *session) existing(w world, subnets []netip.Prefix) (topology.Cluster, error) {
	c, err := w.record()
	if err == nil && c.Subnets == nil {
		c.Subnets = subnets
	}
	if err != nil || w.recorded() {
		return c, err
	}
	return c.Resize(c.Subnets, s.joinSubnets(c))
}

// joinSubnets returns the join subnets for c: the configured ones if they differ from the default, then the
// recorded ones, because gateways hold addresses in them.
func (s *session) joinSubnets(c topology.Cluster) []netip.Prefix {
	defaults, _ := config.Resolve(config.Sources{})
	if slices.Equal(s.config.JoinSubnets, defaults.JoinSubnets) {
		return append(slices.Clone(c.Join), s.config.JoinSubnets...) // New takes the first of each family
	}
	return append(slices.Clone(s.config.JoinSubnets), c.Join...)
}

// taken is an error if a switch of the Python era, not in the record c, overlaps a subnet of r.
func taken(w world, c topology.Cluster, r request) error {
	var errs []error
	for _, sw := range w.switches {
		other, err := netip.ParsePrefix(sw.OtherConfig["subnet"])
		if err != nil || sw.Name == r.node || sw.ExternalIDs[names.GatewayIP] == "" || c.Nodes[sw.Name] != nil {
			continue
		}
		if a, b, overlap := ipnet.Overlap(r.subnets, []netip.Prefix{other.Masked()}); overlap {
			errs = append(errs, fmt.Errorf("subnet %s of node %s overlaps subnet %s of switch %s: choose a free one", a, r.node, b, sw.Name))
		}
	}
	return errors.Join(errs...)
}

// Intervals between attempts while others change the topology too.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Second
)

// maxRefused is how often a refused transaction is repeated. The database refuses rows with the same name from two
// clients at once.
const maxRefused = 5

// changeCluster gives the cluster and a unit their rows in one transaction. After a conflict with another client,
// it computes the change again from the new state.
func (s *session) changeCluster(ctx context.Context, unit nb.Unit, change clusterChange) (changes []nbsync.Change, err error) {
	err = s.withNB(ctx, "changing the Northbound database", func(ctx context.Context) error {
		b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstRetry), backoff.WithMaxInterval(lastRetry), backoff.WithMaxElapsedTime(0))
		refusals := 0
		return backoff.Retry(func() (err error) {
			changes, err = s.tryChange(ctx, unit, change)
			var refused *ovsdb.Refused
			if errors.As(err, &refused) {
				refusals++
			}
			if err == nil || errors.Is(err, nbsync.ErrConflict) || refused != nil && refusals < maxRefused {
				return err
			}
			return backoff.Permanent(err)
		}, backoff.WithContext(b, ctx))
	})
	return changes, err
}

// withNB is stage for work on the Northbound database. s.nb does not connect again by itself.
func (s *session) withNB(ctx context.Context, what string, work func(context.Context) error) error {
	lost := false
	return s.Stage(ctx, what, func(ctx context.Context) error {
		if lost {
			if err := s.connectNB(ctx); err != nil {
				return err
			}
		}
		err := work(ctx)
		if errors.Is(err, errReadAll) {
			s.only, lost = "", true
			if err := s.connectNB(ctx); err != nil {
				return err
			}
			err = work(ctx)
		}
		lost = ctx.Err() != nil || errors.Is(err, ovsdb.ErrNotConnected)
		if err != nil && !lost {
			return settings.Wrong(err)
		}
		return err
	})
}

// tryChange makes a change once. It fails if the router's record changed since the change was computed.
func (s *session) tryChange(ctx context.Context, unit nb.Unit, change clusterChange) ([]nbsync.Change, error) {
	w, err := s.readWorld(ctx)
	if err != nil {
		return nil, err
	}
	after, err := change(w)
	if err != nil {
		return nil, err
	}
	if s.only != "" {
		return s.changeNode(ctx, w, after)
	}
	guard := nbsync.Absent(nbdb.LogicalRouterTable, names.ClusterRouter)
	if w.router != nil {
		guard = nbsync.Unchanged(nbdb.LogicalRouterTable, w.router, "external_ids")
	}
	return (&nbsync.Sync{DB: s.nb}).ApplyAll(ctx, rows(w.before(), after, unit), guard)
}

// planCluster returns the changes of changeCluster.
func (s *session) planCluster(ctx context.Context, unit nb.Unit, change clusterChange) ([]nbsync.Change, error) {
	w, err := s.readWorld(ctx)
	if err != nil {
		return nil, err
	}
	after, err := change(w)
	if err != nil {
		return nil, err
	}
	plan, err := (&nbsync.Sync{DB: s.nb}).Plan(rows(w.before(), after, unit))
	if err != nil {
		return nil, err
	}
	for _, u := range slices.Sorted(maps.Keys(plan.Failed)) {
		err = errors.Join(err, fmt.Errorf("%s: %w", u, plan.Failed[u]))
	}
	return plan.Changes, err
}

// previewCluster prints the changes of changeCluster.
func (s *session) previewCluster(ctx context.Context, unit nb.Unit, change clusterChange) error {
	changes, err := s.planCluster(ctx, unit, change)
	if err != nil {
		return err
	}
	lines := make([]string, len(changes))
	for i, c := range changes {
		lines[i] = c.String()
	}
	s.Section("Northbound database", lines)
	return nil
}
