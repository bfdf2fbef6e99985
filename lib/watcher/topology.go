package watcher

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb"
)

// topologyCopy has the copy of the topology, to restore an emptied database.
var topologyCopy = types.NamespacedName{Namespace: names.ConfigNamespace, Name: names.TopologyConfigMap}

// readTopology reads the topology from the cluster router in the database. It reports false if there is no such
// router. The parser caches the last result.
func readTopology(db *ovsdb.DB, p *topology.Parser) (c topology.Cluster, found bool, err error) {
	routers, err := clusterRouters(db)
	if err != nil {
		return c, false, err
	}
	switch len(routers) {
	case 0:
		return c, false, nil
	case 1:
		if routers[0].ExternalIDs[names.ClusterSubnets] == "" {
			return c, true, fmt.Errorf("logical router %q was made by a former version: run \"ovn-k8s-overlay master-init\" and, on each node, \"minion-init\" again", routers[0].Name)
		}
		c, err = p.FromRouter(routers[0])
		return c, true, err
	}
	return c, true, fmt.Errorf("%d logical routers have external_ids:%s=yes, as %q and %q: remove it from all but one", len(routers), names.ClusterRouterTag, routers[0].Name, routers[1].Name)
}

// clusterRouters lists the routers with the tag of a cluster router.
func clusterRouters(db *ovsdb.DB) (routers []*nbdb.LogicalRouter, err error) {
	client := db.Client()
	if client == nil || client.Cache() == nil {
		return nil, ovsdb.ErrNotConnected
	}
	for _, m := range client.Cache().Table(nbdb.LogicalRouterTable).RowsShallow() {
		if r := m.(*nbdb.LogicalRouter); r.ExternalIDs[names.ClusterRouterTag] == "yes" {
			routers = append(routers, r)
		}
	}
	return routers, nil
}

// A foreign is the error of a database with another Kubernetes cluster as its owner. Writing to it would delete rows
// of that cluster's pods.
type foreign struct{ router, theirs, ours string }

// Error implements error.
func (f foreign) Error() string {
	return fmt.Sprintf("the Northbound database is that of another Kubernetes cluster, whose namespace kube-system has the UID %s instead of %s: correct ovn-nb or k8s-api-server; "+
		"or if that cluster is no more, run \"ovn-nbctl remove Logical_Router %s external_ids %s\"", f.theirs, f.ours, f.router, names.KubernetesUID)
}

// checkOwner returns an error if the database belongs to another Kubernetes cluster than the one with this UID.
func checkOwner(db *ovsdb.DB, uid string) error {
	routers, err := clusterRouters(db)
	if err != nil || uid == "" {
		return nil // not known, or not yet
	}
	for _, r := range routers {
		if theirs := r.ExternalIDs[names.KubernetesUID]; theirs != "" && theirs != uid {
			return foreign{r.Name, theirs, uid}
		}
	}
	return nil
}

// savedTopology reads the copy of the topology, nil if there is none.
func savedTopology(ctx context.Context, cluster *kube.Cluster) (*topology.Cluster, error) {
	data, err := cluster.ReadConfigMap(ctx, topologyCopy)
	if err != nil || data == nil {
		return nil, err
	}
	c, err := topology.ReadRegistry(data)
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", topologyCopy, err)
	}
	return &c, nil
}

// assignments reads the assignments of an earlier run, and the marks where the pools of nodes resume: each is a
// pod.Assignment or pod.Marks.
func assignments(db *ovsdb.DB) (out []any) {
	client := db.Client()
	if client == nil || client.Cache() == nil {
		return nil
	}
	for _, m := range client.Cache().Table(nbdb.LogicalSwitchPortTable).RowsShallow() {
		port := m.(*nbdb.LogicalSwitchPort)
		if a, ok := pod.ReadAssignment(port); ok {
			out = append(out, a)
		} else if marks, ok := pod.ReadMarks(port); ok {
			out = append(out, marks)
		}
	}
	return out
}
