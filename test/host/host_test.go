package host_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/require"
)

// world creates a fabric and hosts, and a context with a deadline.
func world(t *testing.T, names ...string) (context.Context, *host.Fabric, []*host.Host) {
	t.Helper()
	require.Nothing(t, require.Node, host.Missing())
	ctx, cancel := context.WithTimeout(t.Context(), limit.Of(time.Minute))
	t.Cleanup(cancel)
	fabric, err := host.NewFabric()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fabric.Close)
	var hosts []*host.Host
	for _, name := range names {
		h, err := host.New(host.Options{Name: name, Fabric: fabric})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.Close)
		hosts = append(hosts, h)
	}
	return ctx, fabric, hosts
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func script(t *testing.T, ctx context.Context, h *host.Host, text string) string {
	t.Helper()
	out, err := h.Script(ctx, text)
	must(t, err)
	return strings.TrimSpace(out)
}

func TestHostHasItsOwnFilesAndProcesses(t *testing.T) {
	ctx, _, hosts := world(t, "alpha")
	h := hosts[0]
	if got := script(t, ctx, h, "hostname"); got != "alpha" {
		t.Errorf("hostname: %s", got)
	}
	for _, dir := range []string{"/run/x", "/var/run/netns/x", "/etc/x", "/etc/cni/net.d/x", "/opt/cni/bin/x", "/var/lib/x", "/usr/local/bin/x"} {
		script(t, ctx, h, "echo inside > "+dir)
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s of the host exists outside: %v", dir, err)
		}
		if text, err := os.ReadFile(h.Path(dir)); err != nil || string(text) != "inside\n" {
			t.Errorf("reading %s of the host: %q, %v", dir, text, err)
		}
	}
	if got := script(t, ctx, h, "ls /etc/network /etc/openvswitch | grep -c . || true"); got != "2" {
		t.Errorf("files in private directories: %s", got) // only ls's two headings
	}
	// the first process reaps orphans
	script(t, ctx, h, "(sleep 0.01 &) ; exit 0")
	deadline := time.Now().Add(time.Minute)
	for script(t, ctx, h, "cat /proc/[0-9]*/comm | grep -c sleep || true") != "0" {
		if time.Now().After(deadline) {
			t.Fatal("an orphan stays")
		}
	}
}

// A run may take iptables from its hosts: no PATH finds a program of it.
func TestHostsWithoutIPTables(t *testing.T) {
	t.Setenv("OVNK8S_TEST_WITHOUT_IPTABLES", "1")
	ctx, _, hosts := world(t, "node1")
	const script = "for i in iptables ip6tables iptables-save iptables-restore iptables-nft iptables-legacy; do ! command -v $i || exit 1; done; nft list tables"
	if out, err := hosts[0].Script(ctx, script); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	ctx, fabric, hosts := world(t, "alpha")
	h := hosts[0]
	must(t, h.StartOVS(ctx))
	script(t, ctx, h, "ip netns add pod; nohup sleep 1000 >/dev/null 2>&1 &")
	var spaces []string
	for _, kind := range []string{"pid", "net", "mnt"} {
		space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", h.PID(), kind))
		must(t, err)
		spaces = append(spaces, space)
	}
	h.Close()
	links, err := filepath.Glob("/proc/[0-9]*/ns/*")
	must(t, err)
	for _, link := range links {
		if space, err := os.Readlink(link); err == nil && slices.Contains(spaces, space) {
			t.Errorf("%s is still %s", link, space)
		}
	}
	out, err := exec.Command("nsenter", "--net="+fabric.Netns(), "ip", "-br", "link").CombinedOutput()
	must(t, err)
	if strings.Contains(string(out), "host") {
		t.Errorf("links of the fabric: %s", out)
	}
}

func TestRunKillsAtTheEndOfItsContext(t *testing.T) {
	ctx, _, hosts := world(t, "alpha")
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, _, err := hosts[0].Run(short, "sh", "-c", "sleep 1000 & sleep 1000"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run: %v", err)
	}
	// The host's init process has to reap them first.
	if got := script(t, ctx, hosts[0], "timeout 60 sh -c 'while cat /proc/[0-9]*/comm | grep -q sleep; do :; done'; cat /proc/[0-9]*/comm | grep -c sleep || true"); got != "0" {
		t.Errorf("%s sleepers live", got)
	}
	_, _, err := hosts[0].Run(ctx, "sh", "-c", "echo no such luck >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "exit status 3: no such luck") {
		t.Errorf("Run: %v", err)
	}
}

func TestHostsReachEachOtherAndForwardedPorts(t *testing.T) {
	ctx, fabric, hosts := world(t, "alpha", "beta")
	ours, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ours.Close()
	target := ours.Addr().(*net.TCPAddr)
	server, err := probe.Serve("", "outside", target.Port)
	must(t, err)
	defer server.Close()
	_, err = fabric.Forward(6443, target.String())
	must(t, err)
	beta, err := probe.Serve(hosts[1].Netns(), "beta", 80)
	must(t, err)
	defer beta.Close()

	reach := func() {
		t.Helper()
		for _, p := range []probe.Probe{
			{Network: "tcp", Address: probe.Address(host.FabricIPv4(), 6443)},
			{Network: "tcp", Address: probe.Address(host.FabricIPv6(), 6443)},
			{Network: "tcp", Address: probe.Address(hosts[1].IPv4(), 80)},
			{Network: "udp", Address: probe.Address(hosts[1].IPv6(), 80)},
			{Network: "icmp", Address: probe.Address(hosts[1].IPv6(), 0)},
			{Network: "icmp", Address: probe.Address(hosts[1].IPv4(), 0)},
		} {
			p.Netns = hosts[0].Netns()
			_, err := p.Until(ctx)
			must(t, err)
		}
	}
	reach()
	for _, h := range hosts {
		must(t, h.StartOVS(ctx))
	}
	reach()
	must(t, hosts[0].RestartOVS(ctx))
	reach()
}

func TestPodsOnTwoHosts(t *testing.T) {
	ctx, _, hosts := world(t, "alpha", "beta")
	for _, h := range hosts {
		must(t, h.StartOVS(ctx))
	}
	central, err := hosts[0].StartCentral("")
	must(t, err)
	defer central.Close()
	for _, h := range hosts {
		must(t, h.StartController(ctx, central.SBTCP))
	}
	_, err = central.NBCtl("ls-add", "sw",
		"--", "lsp-add", "sw", "alpha", "--", "lsp-set-addresses", "alpha", "0a:00:00:00:00:01 10.1.0.1",
		"--", "lsp-add", "sw", "beta", "--", "lsp-set-addresses", "beta", "0a:00:00:00:00:02 10.1.0.2")
	must(t, err)
	for i, h := range hosts {
		script(t, ctx, h, fmt.Sprintf(`set -e
			ip netns add pod
			ip link add veth0 type veth peer name eth0 netns pod
			ip -n pod link set eth0 address 0a:00:00:00:00:0%[1]d
			ip -n pod addr add 10.1.0.%[1]d/24 dev eth0
			ip -n pod link set eth0 up
			ip netns exec pod ethtool -K eth0 tx off >/dev/null
			ip link set veth0 up
			ovs-vsctl add-port br-int veth0 -- set Interface veth0 external_ids:iface-id=%[2]s`, i+1, h.Name))
	}
	must(t, central.Sync())
	server, err := probe.Serve(hosts[1].Path("/run/netns/pod"), "beta", 80)
	must(t, err)
	defer server.Close()
	p := probe.Probe{
		Netns:   hosts[0].Path("/run/netns/pod"),
		Network: "tcp",
		Address: netip.MustParseAddrPort("10.1.0.2:80"),
	}
	answer, err := p.Until(ctx)
	must(t, err)
	if !strings.HasPrefix(answer, "beta 10.1.0.1:") {
		t.Errorf("answer: %q", answer)
	}
	must(t, hosts[1].RestartOVS(ctx))
	_, err = p.Until(ctx)
	must(t, err)
}

func TestOutside(t *testing.T) {
	ctx, fabric, _ := world(t)
	inside, err := host.New(host.Options{Name: "inside", Fabric: fabric, SecondNIC: true})
	must(t, err)
	defer inside.Close()
	outside, err := host.New(host.Options{Name: "outside", Fabric: fabric, Outside: true})
	must(t, err)
	defer outside.Close()
	must(t, inside.StartOVS(ctx))
	server, err := probe.Serve(outside.Netns(), "outside", 80)
	must(t, err)
	defer server.Close()
	for i, a := range outside.Addresses {
		p := probe.Probe{Netns: inside.Netns(), Network: "tcp", Address: probe.Address(a.Addr(), 80)}
		answer, err := p.Until(ctx)
		must(t, err)
		if name, client, err := probe.Answer(answer); err != nil || name != "outside" || client.Addr() != inside.Addresses[i].Addr() {
			t.Errorf("answer %q: %v", answer, err)
		}
	}

	second, gateways := inside.Second()
	for i, to := range gateways {
		script(t, ctx, inside, fmt.Sprintf("ip -%d -o address show eth1 | grep -F %v", []int{4, 6}[i], second[i].Addr()))
		_, err := probe.Probe{Netns: inside.Netns(), Network: "icmp", Address: probe.Address(to, 0)}.Until(ctx)
		must(t, err)
	}
	must(t, inside.HideFromKernel(ctx, "eth1"))
	if host.Datapath() == host.Userspace { // the kernel's takes NICs of its bridges
		must(t, probe.Probe{Netns: inside.Netns(), Network: "icmp", Address: probe.Address(gateways[0], 0)}.Silence(ctx, 2))
	}

	ask := probe.Probe{Netns: outside.Netns(), Network: "icmp", Address: probe.Address(inside.IPv4(), 0)}
	_, err = ask.Until(ctx)
	must(t, err)
	must(t, inside.Cut())
	must(t, ask.Silence(ctx, 2))
	must(t, inside.Mend())
	_, err = ask.Until(ctx)
	must(t, err)

	// a network known to the inside host only
	pod := netip.MustParsePrefix("10.9.9.9/32")
	script(t, ctx, inside, "ip address add "+pod.String()+" dev lo")
	ask.Address = probe.Address(pod.Addr(), 0)
	must(t, ask.Silence(ctx, 1))
	withdraw, err := fabric.Route(pod, inside.IPv4())
	must(t, err)
	_, err = ask.Until(ctx)
	must(t, err)
	withdraw()
	must(t, ask.Silence(ctx, 1))
}
