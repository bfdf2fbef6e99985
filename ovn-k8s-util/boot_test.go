package main

import (
	"context"
	"io/fs"
	"net/netip"
	"strings"
	"testing"
	"time"

	"ovn-k8s/docs"
	"ovn-k8s/test/boot"
	"ovn-k8s/test/host"
	"ovn-k8s/test/require"
)

// A machine boots with systemd, Open vSwitch and the command under test. Its eth0 leads to a fabric.
type machine struct {
	*boot.Machine
	t      *testing.T
	ctx    context.Context
	fabric *host.Fabric
}

func newMachine(t *testing.T, packages ...string) *machine {
	t.Helper()
	require.Nothing(t, require.Node, boot.Missing())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	t.Cleanup(cancel)
	fabric, err := host.NewFabric()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fabric.Close)
	m, err := boot.New(boot.Options{Name: "node1", Fabric: fabric, Packages: packages, Programs: []string{bin + "/ovn-k8s-util"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	out := &machine{Machine: m, t: t, ctx: ctx, fabric: fabric}
	out.must(m.Enable("openvswitch-switch"))
	return out
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// start boots the machine and waits for its units.
func (m *machine) start(boot func(context.Context) error) {
	m.t.Helper()
	m.must(boot(m.ctx))
	m.must(m.Settle(m.ctx))
	m.script("ovs-vsctl set Open_vSwitch . external_ids:ovn-bridge-datapath-type=" + host.Datapath())
}

func (m *machine) script(text string) string {
	m.t.Helper()
	out, err := m.Script(m.ctx, text)
	m.must(err)
	return strings.TrimSpace(out)
}

// configure gives eth0 its addresses by hand, not by a program.
func (m *machine) configure() {
	m.t.Helper()
	text := "set -e\nip link set eth0 up\n"
	for _, a := range m.Port.Addresses {
		text += "ip address add " + a.String() + " dev eth0\n"
	}
	m.script(text + "ip route add default via " + host.FabricIPv4().String())
}

// await polls a shell command until it prints want.
func (m *machine) await(line, want string) {
	m.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		r, err := m.Try(line)
		if err == nil && strings.Contains(r.Out, want) {
			return
		}
		if time.Now().After(deadline) {
			journal, _ := m.Try("ip address; ip route; ip -6 route; ovs-vsctl show; nmcli device; nmcli connection; journalctl -b --no-pager -u NetworkManager | tail -60; systemctl --failed --no-pager; journalctl -b --no-pager -p warning | tail -40")
			m.t.Fatalf("%s: no %q in %+v\n%s", line, want, r, journal.Out)
		}
	}
}

// reaches waits until the fabric answers at an address.
func (m *machine) reaches(a netip.Addr) {
	m.t.Helper()
	m.await("ping -c1 -W1 "+a.String(), "1 received")
}

// H6: --confirm-within undoes the move also if a service ran it, as with systemd-run and cloud-init: systemd kills
// all processes of a service when it ends.
func TestConfirmWithinHoldsFromAService(t *testing.T) {
	m := newMachine(t)
	m.start(m.Boot)
	m.configure()
	out := m.script("systemd-run --wait --pipe --quiet ovn-k8s-util nics-to-bridge eth0 --confirm-within=5s")
	has(t, out, "breth0 has what eth0 had")
	has(t, m.script("ip route"), "dev breth0")
	m.await("ls /etc/openvswitch/ovn-k8s-util/*.json 2>/dev/null || ip route", "default via "+host.FabricIPv4().String()+" dev eth0")
	m.reaches(host.FabricIPv4())
	m.await("systemctl list-units --all --plain --no-legend 'ovn-k8s-util-watchdog-*' | wc -l", "0")
	// confirmed, two of one command stay
	m.script("ip link add eth9 type veth peer name peer9 && ip link set peer9 up && ip link set eth9 up && ip address add 192.0.2.9/24 dev eth9")
	out = m.script("systemd-run --wait --pipe --quiet ovn-k8s-util nics-to-bridge eth0 eth9 --confirm-within=6s && ovn-k8s-util confirm")
	has(t, out, "breth0 has what eth0 had", "breth9 has what eth9 had", "nics-to-bridge of eth9 is confirmed")
	m.await("systemctl list-units --all --plain --no-legend 'ovn-k8s-util-watchdog-*' | wc -l", "0")
	has(t, m.script("ip route"), "default via "+host.FabricIPv4().String()+" dev breth0")
}

// S7: after a power cut in the middle of a move, or before it is confirmed, the recover unit undoes it before
// the network comes up, and the NIC's own configuration works.
func TestAPowerCutDuringAMoveIsRecovered(t *testing.T) {
	m := withManager(t, boot.Managers()[0])
	unit, err := fs.ReadFile(docs.Files, "systemd/ovn-k8s-util-recover.service")
	m.must(err)
	m.must(m.Write("/etc/systemd/system/ovn-k8s-util-recover.service", string(unit)))
	m.must(m.Enable("ovn-k8s-util-recover"))
	for _, move := range []string{
		// frozen in the middle; if the move was over first, the last command fails
		"systemd-run --quiet --unit=move ovn-k8s-util nics-to-bridge eth0; timeout 60 sh -c 'until [ -e /etc/openvswitch/ovn-k8s-util/breth0.json ]; do :; done'; systemctl kill -s STOP move; ls /etc/openvswitch/ovn-k8s-util/breth0.json",
		"ovn-k8s-util nics-to-bridge eth0 --confirm-within=10m",
	} {
		m.script(move)
		m.start(m.PowerCycle)
		if out := m.script("ls /etc/openvswitch/ovn-k8s-util/*.json 2>/dev/null; ovs-vsctl list-br; systemctl --failed --no-legend; systemctl show -p Result --value ovn-k8s-util-recover"); out != "success" {
			t.Errorf("after %s: %s", move, out)
		}
		has(t, m.script("ip route show default"), "dev eth0")
		m.reaches(host.FabricIPv4())
		m.reaches(host.FabricIPv6())
	}
}
