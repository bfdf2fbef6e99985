package vswitch_test

import (
	"strings"
	"testing"

	"ovn-k8s/lib/ovsdb/vswitch"
)

// H17: a bridge ovs-vswitchd cannot make is an error at once, with the reason from its log, also if the database
// had the bridge before.
func TestWhatCannotBeOpenedIsToldAtOnce(t *testing.T) {
	n := newNode(t)
	t.Setenv("OVS_LOGDIR", n.dir)
	stop(&n.daemon)
	n.daemon = n.start("ovs-vswitchd", "--disable-system", "--log-file", "unix:"+n.dir+"/db.sock")
	n.vsctl("remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-datapath-type")
	s := n.connect()
	for range 2 {
		_, err := s.EnsureInternalPort(n.ctx(), vswitch.InternalPort{Bridge: "br-int", Name: "k8s-node1"})
		if err == nil || !strings.Contains(err.Error(), "ovs-vswitchd has not opened it: ") || !strings.Contains(err.Error(), "br-int") ||
			!strings.Contains(err.Error(), "ovs-vswitchd.log") {
			t.Errorf("%v", err)
		}
		t.Log(err)
	}
}
