package main

import (
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/names"
)

// swap stops the Northbound database, copies a file to another one, and starts it again.
func swap(w *world, from, to string) {
	w.Helper()
	w.central.StopNB()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err == nil {
		err = w.central.StartNB()
	}
	if err != nil {
		w.Fatal(err)
	}
}

// copied waits until the copy of the topology has a key with a value; "" is none.
func (w api) copied(key, value string) {
	w.Helper()
	w.eventually("the copy of the topology has "+key+"="+value, func() bool {
		cm, err := cluster.Client().CoreV1().ConfigMaps(names.ConfigNamespace).Get(w.Context(), names.TopologyConfigMap, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			w.Fatal(err)
		}
		return err == nil && cm.Data[key] == value
	})
}

// A database from a backup lacks the nodes that joined since. The copy of the topology keeps them under other keys, with an
// Event, until they are recorded again; their pods keep their addresses. A removal that the watcher sees is none of this.
func TestANorthboundDatabaseFromABackup(t *testing.T) {
	const subnet, key, lost = "192.168.3.0/24", names.NodePrefix + "node2", "the record of the topology lacks what its copy has"
	for _, way := range []string{"the watcher runs", "no watcher runs"} {
		t.Run(way, func(t *testing.T) {
			w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
			p := w.start()
			w.copied(names.NodePrefix+"node1", "192.168.2.0/24")
			backup, file := w.dir+"/backup", strings.TrimSuffix(strings.TrimPrefix(w.central.NB, "unix:"), ".sock")+".db"
			swap(w, file, backup)
			w.topology(map[string]string{"node1": "192.168.2.0/24", "node2": subnet})
			w.pod("b", "node2", nil)
			b := w.annotation("b")
			w.copied(key, subnet)

			if way == "no watcher runs" {
				p.kill()
			}
			swap(w, backup, file)
			if way == "no watcher runs" {
				p = w.start()
			}
			text := w.eventIn(names.ConfigNamespace, "ConfigMap", names.TopologyConfigMap, "TopologyLost")
			if !strings.Contains(text, "node node2 ("+subnet+");") || p.says(lost) != 1 {
				t.Errorf("%d lines, and the Event: %s", p.says(lost), text)
			}
			w.copied(names.LostPrefix+key, subnet)
			w.copied(key, "")
			p.kill()
			p = w.start() // remembers, and does not tell it again
			w.pod("a", "node1", nil)
			w.annotation("a")
			w.copied(names.LostPrefix+key, subnet)

			w.topology(map[string]string{"node1": "192.168.2.0/24", "node2": subnet}) // as by minion-init
			w.eventually("pod b has its port again", func() bool { return w.port("default_b", "addresses") == line(b) })
			w.copied(key, subnet)
			w.copied(names.LostPrefix+key, "")
			w.nbctl("remove", "Logical_Router", names.ClusterRouter, "external_ids", key)
			w.copied(key, "")
			w.copied(names.LostPrefix+key, "")
			if n := p.says(lost); n != 0 {
				t.Errorf("%d lines about a node that was removed or told before", n)
			}
		})
	}
}

// A copy of the topology that a hand has spoilt: with the record in the database a watcher starts, tells it and writes the copy
// anew. With an empty database no watcher starts, and the copy stays for people to correct.
func TestAnUnreadableCopyOfTheTopology(t *testing.T) {
	const subnet, key = "192.168.2.0/24", names.NodePrefix + "node1"
	w := newWorld(t, map[string]string{"node1": subnet})
	spoil := func(key, text string) {
		t.Helper()
		api := cluster.Client().CoreV1().ConfigMaps(names.ConfigNamespace)
		cm, err := api.Get(t.Context(), names.TopologyConfigMap, metav1.GetOptions{})
		if err == nil {
			cm.Data[key] = text
			_, err = api.Update(t.Context(), cm, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p := w.start()
	w.copied(key, subnet)
	p.kill()
	spoil(key, "junk")
	spoil(names.ClusterSubnets, "x")
	p = w.start()
	w.copied(key, subnet)
	w.copied(names.LostPrefix+names.ClusterSubnets, "x")
	w.copied(names.LostPrefix+key, "")
	text := w.eventIn(names.ConfigNamespace, "ConfigMap", names.TopologyConfigMap, "TopologyUnreadable")
	if !strings.Contains(text, "reading "+names.ClusterSubnets) || p.says("cannot be restored from it") != 1 {
		t.Errorf("%d lines, and the Event: %s", p.says("cannot be restored from it"), text)
	}
	p.kill()
	spoil(key, "junk")
	if err := w.central.StartEmptyNB(); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := w.once(w.args()...); status != 1 || !strings.Contains(stderr, "reading "+key) {
		t.Errorf("an empty database: status %d, %q", status, stderr)
	}
	w.copied(key, "junk")
}
