package declare

import (
	"context"
	"io"
	"testing"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/test/ovntest"
)

// newDeclarer returns a Declarer with a real ovsdb-server, and a function to run ovs-vsctl.
func newDeclarer(t testing.TB) (*Declarer, func(args ...string) string) {
	t.Helper()
	dir, vsctl := ovntest.ConfDB(t)
	vsctl("init", "--", "set", "Open_vSwitch", ".", `external_ids:ovn-cms-options="enable-chassis-as-gw,`+names.GatewayDownOption+`:bridge"`)
	sw, err := vswitch.Connect(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sw.Close)
	log := logrus.New()
	log.SetOutput(io.Discard)
	return &New(sw, logrus.NewEntry(log), nil, nil).Declarer, vsctl
}

// The declaration is compared after each change of any row. The server is asked about a difference only: while a hundred pods
// start, their ports need it.
func TestOnlyDifferencesAreAsked(t *testing.T) {
	d, vsctl := newDeclarer(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel() // with it every question fails
	d.set(map[string]verdict{names.BridgeMode: down, names.LocalMode: up}, nil)
	if err := d.declare(ended); err != nil || d.String() != names.BridgeMode {
		t.Errorf("declared %s, %v", d, err)
	}
	d.set(map[string]verdict{names.BridgeMode: up, names.LocalMode: down}, nil)
	if err := d.declare(ended); err == nil || d.String() != names.BridgeMode {
		t.Errorf("declared %s without a question, %v", d, err)
	}
	if err := d.declare(t.Context()); err != nil || d.String() != names.LocalMode {
		t.Errorf("declared %s, %v", d, err)
	}
	if got, want := vsctl("get", "Open_vSwitch", ".", "external_ids:ovn-cms-options"), `"enable-chassis-as-gw,`+names.GatewayDownOption+`:local"`; got != want {
		t.Errorf("ovn-cms-options %s, want %s", got, want)
	}
}

// BenchmarkDeclare is the cost of each change of any row for the declaration.
func BenchmarkDeclare(b *testing.B) {
	d, _ := newDeclarer(b)
	d.set(map[string]verdict{names.BridgeMode: down, names.LocalMode: up}, nil)
	for b.Loop() {
		if err := d.declare(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
