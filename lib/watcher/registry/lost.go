package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
)

// A Northbound database from a backup lacks the nodes and gateways of later joins, and has former subnets of nodes. The copy
// has the later ones, and would be written over. A command may as well have changed them while nobody followed the database:
// nothing tells the two apart. So nothing is written back. The copy keeps them under other keys, and people are told.

// KeepLost has the copy keep nodes, with their subnets, and gateways missing in a record read anew. nodes returns the Nodes of
// Kubernetes. Until Found was called nothing is copied.
func (y *Copy) KeepLost(log *logrus.Entry, nodes func() map[string]bool) {
	y.log, y.nodes, y.reread = log, nodes, true
}

// about is the Node of a key of the topology, and a text for people; "" for other keys, and for gateways that cannot be read.
func about(key, value string) (node, text string) {
	if node, ok := strings.CutPrefix(key, names.NodePrefix); ok {
		return node, fmt.Sprintf("node %s (%s)", node, value)
	}
	if node, ok := strings.CutPrefix(key, names.ChassisPrefix); ok {
		return node, ""
	}
	if name, ok := strings.CutPrefix(key, names.GatewayPrefix); ok {
		var g topology.Gateway
		switch err := json.Unmarshal([]byte(value), &g); {
		case err != nil:
			return "", ""
		case g.Node != "":
			return g.Node, "gateway " + name
		}
		return name, "gateway " + name
	}
	return "", ""
}

// lack looks for what the record c lacks, before it is copied. Without anything to look for it costs nothing.
func (y *Copy) lack(c topology.Cluster) {
	before := y.kept()
	if y.nodes == nil || !y.reread && len(before) == 0 {
		return
	}
	lost, found := y.former(), false
	numbered := lost[names.NumberedBy] != "" // the master of ovnkube gives Nodes their former subnets
	maps.Copy(lost, before)
	now, nodes := c.Registry(), y.nodes()
	all := maps.Clone(lost)
	var told []string
	for key, value := range lost {
		node, text := about(key, value)
		recorded, has := now[key]
		own := names.NodePrefix + node
		// alone: its host is no node. moved: pods there have addresses of the former subnets.
		alone := strings.HasPrefix(key, names.GatewayPrefix) && !nodes[node] && all[own] == "" && now[own] == ""
		moved := has && key == own && y.bad == nil
		switch {
		case node != "" && has && !moved, node != "" && !nodes[node] && !alone, recorded == value:
			delete(lost, key)
			continue
		case moved:
			text = fmt.Sprintf("node %s (%s, and the record has %s)", node, value, recorded)
		}
		if _, known := before[key]; !known && node != "" && !numbered {
			found = true
			if text != "" {
				told = append(told, text)
			}
		}
	}
	y.reread, y.bad = false, nil
	y.keep.Store(&lost)
	if found {
		slices.Sort(told)
		y.tell(told)
	}
}

// former are the keys to look for in a record read anew: those of an unreadable copy, or nodes and gateways in the copy.
func (y *Copy) former() map[string]string {
	lost := map[string]string{}
	switch {
	case !y.reread:
	case y.bad != nil:
		return y.bad
	case y.saved != nil && y.saved.NumberedBy == "":
		lost = y.saved.Registry()
		maps.DeleteFunc(lost, func(key, value string) bool {
			node, _ := about(key, value)
			return node == ""
		})
	}
	return lost
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
	text := fmt.Sprintf("the record of the topology lacks what its copy has: %s; if the Northbound database is from a backup, "+
		"repeat minion-init and gateway-init there, with the same subnets: the ConfigMap %s has all in keys with %s; if they were removed, delete their Nodes, and the keys of gateways without a Node while no watcher runs", strings.Join(lost, ", "), y.name, names.LostPrefix)
	y.log.Error(text)
	y.event("TopologyLost", text)
}

// tellUnreadable tells the same way, once, of an unreadable copy.
func (y *Copy) tellUnreadable(err error) {
	if y.toldBad {
		return
	}
	y.toldBad = true
	text := fmt.Sprintf("%v: an emptied Northbound database cannot be restored from it; while the database has the record, the copy is written anew, and what differs in this one stays in keys with %s; otherwise correct the ConfigMap", err, names.LostPrefix)
	y.log.Error(text)
	y.event("TopologyUnreadable", text)
}

// tellLong tells the same way of keys too long for the ConfigMap: those of names from earlier releases.
func (y *Copy) tellLong(keys []string) {
	text := ""
	if len(keys) > 0 {
		text = fmt.Sprintf("the copy of the topology lacks %d keys of more than %d characters, such as %s: an emptied Northbound database is restored without these nodes and gateways; give the hosts shorter names",
			len(keys), maxKey, slices.Min(keys))
	}
	if text != "" && text != y.toldLong {
		y.log.Warn(text)
		y.event("TopologyNameTooLong", text)
	}
	y.toldLong = text
}

// withLost adds the keys lost to the data of the ConfigMap.
func withLost(data, lost map[string]string) map[string]string {
	for key, value := range lost {
		data[names.LostPrefix+key] = value
	}
	return data
}

// withoutLost are the other keys in the data of the ConfigMap.
func withoutLost(data map[string]string) map[string]string {
	data = maps.Clone(data)
	maps.DeleteFunc(data, func(key, _ string) bool { return strings.HasPrefix(key, names.LostPrefix) })
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
