package main

import (
	"strings"
	"testing"
)

// A host is a gateway of one name. Another name, also in other capitals, is refused with the name of the present one. If
// its bridge was deleted, gateway-remove removes the rest.
func TestAGatewayOfAnotherName(t *testing.T) {
	w := newGatewayWorld(t, "master")
	m := w.nodes[0]
	before := m.host()
	const remedy = " is that of gateway gw3 on this host: spell the name like that, or run gateway-remove --node-name=gw3 first"
	m.init(localArgs)
	for _, name := range []string{"Gw3", "other"} {
		m.fails(strings.Replace(localArgs, "gw3", name, 1), "bridge br-local"+remedy)
	}
	m.script("ovs-vsctl del-br br-local")
	m.fails(strings.Replace(localArgs, "gw3", "other", 1), "port k8s-patch-br-int-br-local"+remedy)
	if r := m.run("gateway-remove --node-name=gw3"); r.Status != 0 {
		t.Errorf("%+v", r)
	}
	same(t, "host", m.host(), before)

	own := strings.Replace(physicalArgs, "Gw1", "gw3", 1)
	m.init(own)
	m.fails(physicalArgs, "port eth1"+remedy)
	m.script("ovs-vsctl add-br br-local -- set bridge br-local datapath_type=$OVNK8S_TEST_DATAPATH")
	m.fails(localArgs, "there is a bridge br-local that is not ours: rename or delete it")
}
