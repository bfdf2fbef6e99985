// Package records reads the records of the commands and of an earlier watcher from the Northbound database: the topology,
// the owner of the database, assignments, routes, and the rows of Services.
package records

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb"
)

// Records are those of one database. One goroutine calls Topology, Stale and WarnUnowned.
type Records struct {
	db      *ovsdb.DB
	parser  topology.Parser       // caches the last topology
	routers []*nbdb.LogicalRouter // as Topology read them
	read    *cache.TableCache     // the source of routers
	anew    bool                  // read has changed since the last call of Anew
	unowned []string              // the problems told by WarnUnowned
	unfit   Once                  // the error told by UsableTopology
}

// Once tells apart a new error from one that comes again with each change of a record.
type Once struct{ last string }

// New records an error, which may be nil, and reports whether it differs from the last one.
func (o *Once) New(err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	differs := text != o.last
	o.last = text
	return differs && err != nil
}

// New returns the Records of a database.
func New(db *ovsdb.DB) *Records { return &Records{db: db} }

// rows is the copy of the database, nil if there is none.
func (r *Records) rows() *cache.TableCache { return r.db.Cache() }

// Topology reads the topology from the cluster router. It reports false if there is no such router.
func (r *Records) Topology() (c topology.Cluster, found bool, err error) {
	rows := r.rows()
	if rows == nil {
		return c, false, ovsdb.ErrNotConnected
	}
	routers := ClusterRouters(rows)
	r.anew = r.anew || rows != r.read
	r.routers, r.read = routers, rows
	switch len(routers) {
	case 0:
		return c, false, nil
	case 1:
		if routers[0].ExternalIDs[names.ClusterSubnets] == "" {
			return c, true, fmt.Errorf("logical router %q was made by a former version: run \"ovn-k8s-overlay master-init\" and, on each node, \"minion-init\" again", routers[0].Name)
		}
		c, err = r.parser.FromRouter(routers[0])
		return c, true, err
	}
	return c, true, fmt.Errorf("%d logical routers have external_ids:%s=yes, as %q and %q: remove it from all but one", len(routers), names.ClusterRouterTag, routers[0].Name, routers[1].Name)
}

// UsableTopology is Topology without gateways that do not fit in: they must not keep all others from changes. log tells them, once for
// each reason.
func (r *Records) UsableTopology(log *logrus.Entry) (c topology.Cluster, found bool, err error) {
	c, found, err = r.Topology()
	unfit := errors.As(err, new(topology.Unfit))
	switch {
	case !unfit && err != nil: // nothing is known of gateways
		return c, found, err
	case r.unfit.New(err):
		log.Errorf("gateways of the record are left out: %v", err)
	}
	return c, found, nil
}

// Anew reports whether Topology has read over a new connection since the last call of Anew: changes between two connections
// are not known.
func (r *Records) Anew() bool {
	anew := r.anew
	r.anew = false
	return anew
}

// Stale reports whether the record of the topology has changed since Topology read it.
func (r *Records) Stale() bool {
	routers, err := r.clusterRouters()
	return err == nil && !slices.EqualFunc(routers, r.routers, func(a, b *nbdb.LogicalRouter) bool {
		return a == b || maps.Equal(a.ExternalIDs, b.ExternalIDs)
	})
}

// clusterRouters lists the routers with the tag of a cluster router.
func (r *Records) clusterRouters() (routers []*nbdb.LogicalRouter, err error) {
	rows := r.rows()
	if rows == nil {
		return nil, ovsdb.ErrNotConnected
	}
	return ClusterRouters(rows), nil
}

// ClusterRouters lists the routers with the tag of a cluster router in a copy of the database.
func ClusterRouters(rows *cache.TableCache) (routers []*nbdb.LogicalRouter) {
	for _, m := range rows.Table(nbdb.LogicalRouterTable).RowsShallow() {
		if r := m.(*nbdb.LogicalRouter); r.ExternalIDs[names.ClusterRouterTag] == "yes" {
			routers = append(routers, r)
		}
	}
	return routers
}

// A Foreign is the error of a database with another Kubernetes cluster as its owner. Writing to it would delete rows
// of that cluster's pods.
type Foreign struct{ router, theirs, ours string }

// Error implements error.
func (f Foreign) Error() string {
	return fmt.Sprintf("the Northbound database is that of another Kubernetes cluster, whose namespace kube-system has the UID %s instead of %s: correct ovn-nb or k8s-api-server; "+
		"or if that cluster is no more, run \"ovn-nbctl remove Logical_Router %s external_ids %s\"", f.theirs, f.ours, f.router, names.KubernetesUID)
}

// CheckOwner returns an error if the database belongs to another Kubernetes cluster than the one with this UID.
func (r *Records) CheckOwner(uid string) error {
	routers, err := r.clusterRouters()
	if err != nil || uid == "" {
		return nil // not known, or not yet
	}
	for _, router := range routers {
		if theirs := router.ExternalIDs[names.KubernetesUID]; theirs != "" && theirs != uid {
			return Foreign{router.Name, theirs, uid}
		}
	}
	return nil
}

// Former reads what an earlier watcher has left, as facts for the World: the assignments, the marks where the pools of nodes
// resume, and the Selection of the Services. Each is a pod.Assignment, pod.Marks or loadbalancer.Selection. Without a
// connection it returns ErrNotConnected.
func (r *Records) Former() (facts []any, err error) {
	rows := r.rows()
	if rows == nil {
		return nil, ovsdb.ErrNotConnected
	}
	for _, m := range rows.Table(nbdb.LogicalSwitchPortTable).RowsShallow() {
		port := m.(*nbdb.LogicalSwitchPort)
		if a, ok := pod.ReadAssignment(port); ok {
			facts = append(facts, a)
		} else if marks, ok := pod.ReadMarks(port); ok {
			facts = append(facts, marks)
		}
	}
	selection, _, _, err := r.Services()
	return append(facts, selection), err
}

// PodPorts are the logical ports of pods in the Northbound database.
func (r *Records) PodPorts() []string {
	var ports []string
	rows := r.rows()
	if rows == nil {
		return nil
	}
	for _, m := range rows.Table(nbdb.LogicalSwitchPortTable).RowsShallow() {
		if p := m.(*nbdb.LogicalSwitchPort); p.ExternalIDs[names.Pod] == "true" {
			ports = append(ports, p.Name)
		}
	}
	slices.Sort(ports)
	return ports
}

// Led returns the gateways with routes to them in the database, nil if unknown. A gateway without routes was down
// before the watcher started.
func (r *Records) Led() map[string]bool {
	rows := r.rows()
	if rows == nil {
		return nil
	}
	led := map[string]bool{}
	for _, table := range []string{nbdb.LogicalRouterStaticRouteTable, nbdb.LogicalRouterPolicyTable} {
		for _, m := range rows.Table(table).RowsShallow() {
			ids := m.(interface{ GetExternalIDs() map[string]string }).GetExternalIDs()
			if name, ok := topology.GatewayOf(nb.Unit(ids[names.Owner])); ok && strings.HasPrefix(ids[names.ID], name+"/") {
				led[name] = true
			}
		}
	}
	return led
}
