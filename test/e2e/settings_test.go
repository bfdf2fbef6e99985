package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// Temporarily missing or wrong settings do not end the watcher.
func TestTheWatchersSettingsChangeAtBadTimes(t *testing.T) {
	ofPrograms(t, "./ovnkube")
	master := cluster.Master()
	get := func(key string) string {
		return strings.TrimSpace(sh(t, master, "ovs-vsctl get Open_vSwitch . external_ids:"+key))
	}
	set := func(key, value string) {
		sh(t, master, fmt.Sprintf("ovs-vsctl --no-wait set Open_vSwitch . external_ids:%s='%s'", key, value))
	}
	api, nb := get("k8s-api-server"), get("ovn-nb")
	restore := func() {
		set("k8s-api-server", api)
		set("ovn-nb", nb)
		sh(t, master, "ovs-vsctl --no-wait remove Open_vSwitch . external_ids ovn-k8s-conntrack-zone")
	}
	t.Cleanup(restore)
	const log, pidfile = "/var/log/openvswitch/ovn-k8s-watcher.log", "cat /var/run/openvswitch/ovn-k8s-watcher.pid"
	before, was := len(sh(t, master, "cat "+log)), sh(t, master, pidfile)
	says := func(what string) {
		t.Helper()
		var said string
		eventually(t, "the watcher says "+what, func() bool {
			said = sh(t, master, "cat "+log)[before:]
			return strings.Contains(said, what)
		}, &said)
	}
	sh(t, master, "ovs-vsctl --no-wait remove Open_vSwitch . external_ids k8s-api-server")
	says("WARN|keeping the former configuration: K8S_API_SERVER not set")
	first := map[string]string{"first": "minion1"}
	pods(t, first)
	restore()
	remove(t, first)
	set("ovn-nb", `"tcp:127.0.0.1:9"`)
	says("WARN|trying again: connecting to NB at tcp:127.0.0.1:9")
	set("ovn-k8s-conntrack-zone", "many")
	says(`WARN|keeping the former configuration: bad conntrack-zone "many"`)
	restore()
	pods(t, map[string]string{"second": "minion2"})
	if now := sh(t, master, pidfile); now != was {
		t.Errorf("the watcher was process %s and is %s", was, now)
	}
}
