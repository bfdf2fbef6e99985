package boot_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"ovn-k8s/test/boot"
	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/require"
)

// TestMachine boots a machine with Open vSwitch, cuts its power, and reboots it.
func TestMachine(t *testing.T) {
	require.Nothing(t, require.Node, boot.Missing())
	ctx, cancel := context.WithTimeout(context.Background(), limit.Of(2*time.Minute))
	defer cancel()
	fabric, err := host.NewFabric()
	if err != nil {
		t.Fatal(err)
	}
	defer fabric.Close()
	m, err := boot.New(boot.Options{Name: "node1", Fabric: fabric, Packages: []string{"ifupdown"}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	script := func(text string) string {
		t.Helper()
		out, err := m.Script(ctx, text)
		must(err)
		return strings.TrimSpace(out)
	}
	must(m.Enable("openvswitch-switch", "networking"))
	must(m.Write("/etc/network/interfaces", "auto eth0\niface eth0 inet static\n    address "+m.Port.Addresses[0].String()+"\n"))
	id := ""
	for _, again := range []func(context.Context) error{m.Boot, m.Reboot, m.PowerCycle} {
		must(again(ctx))
		must(m.Settle(ctx))
		if got := script("systemctl --failed --no-legend; hostname"); got != "node1" {
			t.Errorf("failed units, host name: %s", got)
		}
		if got := script("ping -c1 -W5 " + host.FabricIPv4().String() + " >/dev/null && ovs-vsctl get Open_vSwitch . external_ids:system-id"); id == "" {
			id = got
		} else if got != id {
			t.Errorf("system-id %s, was %s", got, id)
		}
	}
}
