package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
)

// A Northbound database from a backup lacks the nodes that joined since. The copy has them, and would be written over. A
// command may as well have removed them while nobody followed the database: nothing tells the two apart. So nothing is
// written back. The copy keeps them under other keys, and people are told.

// KeepLost has the copy keep nodes and gateways that a record read anew lacks. nodes returns the Nodes of Kubernetes. Until
// Found was called nothing is copied.
func (y *Copy) KeepLost(log *logrus.Entry, nodes func() map[string]bool) {
	y.log, y.nodes, y.reread = log, nodes, true
}

// Reread records that the database's record is read anew: changes between two connections are not known.
func (y *Copy) Reread() { y.reread = true }

// about is the Node of a key of the topology, and a text for people; "" for other keys.
func about(key, value string) (node, text string) {
	if node, ok := strings.CutPrefix(key, names.NodePrefix); ok {
		return node, fmt.Sprintf("node %s (%s)", node, value)
	}
	if node, ok := strings.CutPrefix(key, names.ChassisPrefix); ok {
		return node, ""
	}
	if name, ok := strings.CutPrefix(key, names.GatewayPrefix); ok {
		var g topology.Gateway
		if err := json.Unmarshal([]byte(value), &g); err == nil && g.Node != "" {
			return g.Node, "gateway " + name
		}
		return name, "gateway " + name
	}
	return "", ""
}

// lack looks for what the record c lacks, before it is copied.
func (y *Copy) lack(c topology.Cluster) {
	if y.nodes == nil {
		return
	}
	before := y.kept()
	lost, found := maps.Clone(before), false
	if y.reread && y.saved != nil && y.saved.NumberedBy == "" { // the master of ovnkube gives Nodes their former subnets
		lost = y.saved.Registry()
		maps.Copy(lost, before)
	}
	now, nodes := c.Registry(), y.nodes()
	var told []string
	for key, value := range lost {
		node, text := about(key, value)
		_, recorded := now[key]
		if node == "" || recorded || !nodes[node] {
			delete(lost, key)
			continue
		}
		if _, known := before[key]; !known {
			found = true
			if text != "" {
				told = append(told, text)
			}
		}
	}
	y.reread = false
	y.keep.Store(&lost)
	if found {
		slices.Sort(told)
		y.tell(told)
	}
}

// kept are the keys lost so far.
func (y *Copy) kept() map[string]string {
	if lost := y.keep.Load(); lost != nil {
		return *lost
	}
	return nil
}

// tell tells, in the log and by an Event about the ConfigMap, what the record lacks.
func (y *Copy) tell(lost []string) {
	const most = 10
	if more := len(lost) - most; more > 0 {
		lost = append(lost[:most:most], fmt.Sprintf("and %d more", more))
	}
	text := fmt.Sprintf("the record of the topology lacks what its copy has, and Kubernetes has the Nodes: %s; if the Northbound database is from a backup, "+
		"repeat minion-init and gateway-init there, with the same subnets: the ConfigMap %s has all in keys with %s; if they were removed, delete these Nodes", strings.Join(lost, ", "), y.name, names.LostPrefix)
	y.log.Error(text)
	y.cluster.Warn(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: y.name.Namespace, Name: y.name.Name}}, "TopologyLost", text)
}

// withLost adds the keys lost to the data of the ConfigMap.
func withLost(data, lost map[string]string) map[string]string {
	for key, value := range lost {
		data[names.LostPrefix+key] = value
	}
	return data
}

// lostOf are the keys lost in the data of the ConfigMap.
func lostOf(data map[string]string) map[string]string {
	lost := map[string]string{}
	for key, value := range data {
		if key, ok := strings.CutPrefix(key, names.LostPrefix); ok {
			lost[key] = value
		}
	}
	return lost
}
