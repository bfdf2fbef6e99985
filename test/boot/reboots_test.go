package boot_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/boot"
	"ovn-k8s/test/host"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

const (
	// latest bounds the delay of a part of a booting machine's environment.
	latest = time.Minute
	// backWithin bounds the wait for recovery after the last part is there.
	backWithin = 4 * time.Minute
	// emptyCaches is the time after which the caches of the userspace datapath are emptied, see
	// world.ForgetFlows: to tell a stale cache from a defect. It does not help late NodePorts.
	emptyCaches = 25 * time.Second
)

// routerPrefix is the prefix advertised by the fabric's router.
var routerPrefix = netip.MustParsePrefix("fd00:77::/64")

// A setup is one of those in the documentation.
type setup struct {
	name    string
	mode    string // of world.Modes, or "" for a node without a gateway
	manager boot.Manager
	dynamic bool // DHCP and router advertisements
}

func setups() []setup {
	managers := boot.Managers()
	all := []setup{
		{name: "node", manager: managers[0]},
		{name: "own-nic", mode: world.Dedicated, manager: managers[0]},
		{name: "local", mode: world.Local, manager: managers[0]},
	}
	for _, g := range managers {
		all = append(all, setup{name: "shared-" + g.Name + "-static", mode: world.Shared, manager: g},
			setup{name: "shared-" + g.Name + "-dhcp", mode: world.Shared, manager: g, dynamic: true})
	}
	return all
}

// TestReboots reboots a machine of each documented setup, with the network, Open vSwitch, the
// databases and the API server coming up in random order and up to a minute late. H1 to H19.
// "make test-boot" sets OVNK8S_TEST_REBOOTS to the number of rounds.
func TestReboots(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("OVNK8S_TEST_REBOOTS"))
	if err != nil {
		t.Skip("an hour: see make test-boot")
	}
	seed, err := strconv.ParseUint(os.Getenv("OVNK8S_TEST_REBOOTS_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("OVNK8S_TEST_REBOOTS_SEED=%d", seed)
	require.Nothing(t, require.Cluster, world.Missing())
	require.Nothing(t, require.Node, boot.Missing())
	c := newReboots(t)
	for i, s := range setups() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			n := c.add(t, s, i)
			if t.Failed() {
				return
			}
			for round := range rounds {
				h := fnv.New64()
				_, _ = h.Write([]byte(s.name))
				n.reboot(rand.New(rand.NewPCG(seed, h.Sum64()+uint64(round))), round)
			}
			n.watchAdvertisements()
			n.goBack()
		})
	}
}

// reboots is a cluster for machines to join.
type reboots struct {
	*world.World
	dhcp     *host.DHCP
	programs []string
	bin      string
	far      world.Endpoint // a pod on another node
	service  world.Service  // with far as its backend
}

func newReboots(t *testing.T) *reboots {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	bin, err := world.Build(ctx)
	fail(err)
	w, err := world.New(ctx, world.Options{Minions: 1})
	fail(err)
	t.Cleanup(w.Close)
	c := &reboots{World: w, bin: bin}
	for _, p := range world.Programs() {
		c.programs = append(c.programs, filepath.Join(bin, p))
	}
	fail(w.Install(ctx, bin))
	fail(w.StartKubelets(ctx))
	_, err = w.Kube.CreatePod(ctx, "default", "far", "minion1", func(p *corev1.Pod) { p.Labels = map[string]string{world.AppLabel: "far"} })
	fail(err)
	c.far, err = w.AwaitPod(ctx, "default", "far")
	fail(err)
	c.service, err = w.CreateService(ctx, "far", kubelet.DefaultPort, 1, nil)
	fail(err)
	hosts, err := w.ServeHosts()
	fail(err)
	t.Cleanup(hosts.Close)
	c.dhcp, err = w.Fabric.ServeDHCP(host.FabricIPv4(), 20*time.Second)
	fail(err)
	t.Cleanup(c.dhcp.Close)
	out, err := exec.Command("nsenter", "--net="+w.Fabric.Netns(), "ip", "address", "add", routerPrefix.Addr().Next().String()+"/64", "dev", "br0", "nodad").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	stop, err := host.Advertise(w.Fabric.Netns(), routerPrefix, 2*time.Second, 12*time.Second)
	fail(err)
	t.Cleanup(stop)
	return c
}

// A bootedNode is a machine and a node of the cluster.
type bootedNode struct {
	*testing.T
	setup
	c      *reboots
	m      *boot.Machine
	name   string
	number int
	subnet string
	ctx    context.Context
	pod    string // the file of the pod's network namespace
	podIPs []netip.Addr
	server *probe.Server
}

// add makes a machine a node as in install.md, and moves its NIC from a service.
func (c *reboots) add(t *testing.T, s setup, i int) *bootedNode {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Hour)
	t.Cleanup(cancel)
	n := &bootedNode{T: t, setup: s, c: c, name: fmt.Sprintf("boot%d", i), number: 20 + i, ctx: ctx}
	n.subnet = fmt.Sprintf("10.128.%d.0/24,fd01:0:0:%x::/64", n.number, n.number)
	var err error
	n.m, err = boot.New(boot.Options{Name: n.name, Fabric: c.Fabric, SecondNIC: s.mode == world.Dedicated, Packages: s.manager.Packages, Programs: c.programs})
	n.must(err)
	t.Cleanup(n.m.Close)
	c.dhcp.Add(n.m.Port)
	n.must(s.manager.Install(n.m, s.dynamic))
	n.writeFiles()
	n.must(n.m.Enable("openvswitch-switch", "ovn-host"))
	n.must(n.m.Boot(ctx))
	n.must(n.m.Settle(ctx))
	n.await("the network, both families, from which the configuration of the bridge follows", func() error {
		return n.shell("ip route show default | grep -q 'dev eth0' && ip -6 route show default | grep -q 'dev eth0' && ip -6 -o address show dev eth0 scope global -tentative | grep -q .")
	})
	n.configure()
	n.must(n.shellErr("systemctl daemon-reload; systemctl enable ovn-k8s-util-recover"))
	out, err := n.m.Script(ctx, "systemd-run --wait --pipe --quiet ovn-k8s-util nics-to-bridge eth0 --confirm-within=60s; ovn-k8s-util confirm")
	n.must(err)
	n.must(s.manager.Apply(ctx, n.m, out))
	n.join()
	n.await("everything before the first reboot", n.back)
	return n
}

func (n *bootedNode) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// shell runs a script on the machine and returns an error if it fails.
func (n *bootedNode) shell(script string) error {
	ctx, cancel := context.WithTimeout(n.ctx, time.Minute)
	defer cancel()
	_, err := n.m.Script(ctx, script)
	return err
}

// shellErr is shell for scripts with changes: no time limit but the test's.
func (n *bootedNode) shellErr(script string) error {
	_, err := n.m.Script(n.ctx, "set -e\n"+script)
	return err
}

// await polls until done returns no error, and fails the test with the last error. It returns
// the last time of each error.
func (n *bootedNode) await(what string, done func() error) (missing []string) {
	n.Helper()
	began := time.Now()
	emptied := false
	for last := ""; ; time.Sleep(500 * time.Millisecond) {
		err := done()
		if err == nil {
			return missing
		}
		after := time.Since(began)
		if after > backWithin {
			n.Fatalf("%s: %v\n%s", what, err, n.report())
		}
		thing, _, _ := strings.Cut(err.Error(), "\n")
		thing = thing[:min(len(thing), 100)]
		if thing == last {
			missing = missing[:len(missing)-1]
		}
		last = thing
		missing = append(missing, fmt.Sprintf("%s (until %.0fs)", thing, after.Seconds()))
		if after > emptyCaches && !emptied {
			emptied, last = true, ""
			missing = append(missing, "caches of flows emptied")
			n.must(n.c.ForgetFlows(n.ctx))
			n.must(n.shellErr("ovs-appctl -t ovs-vswitchd revalidator/purge"))
		}
	}
}

// report returns the state of a machine for a person to find out why it does not recover.
func (n *bootedNode) report() string {
	r, err := n.m.Try(`systemctl --failed --no-legend; systemctl list-jobs --no-legend; systemctl --no-pager -n0 status 'ovn-k8s-*' | grep -E '●|Active|Status|Loaded'
		ip -o address; ip route; ip -6 route; ip rule; ovs-vsctl show; cat /etc/resolv.conf /etc/network/interfaces; cat /etc/systemd/network/*; ls /etc/openvswitch /etc/openvswitch/ovn-k8s-util
		ovs-ofctl dump-flows breth0 | head -40; tail -n 30 /var/log/openvswitch/ovn-k8s-*.log
		journalctl -b --no-pager -q -p notice | tail -n 60; journalctl -b --no-pager -q -u 'ovn-k8s-*' -u networking -u systemd-networkd -u NetworkManager | tail -n 60`)
	if err != nil {
		return err.Error()
	}
	return r.Out + r.Err + n.central()
}

// central returns the master's state of the machine.
func (n *bootedNode) central() string {
	r, err := n.c.Master().Try(fmt.Sprintf(`grep -w %[1]s /var/log/openvswitch/ovn-k8s-watcher.log | tail -n 12; ovn-nbctl lr-policy-list ovn_cluster_router; ovn-nbctl lr-route-list GR_%[1]s
		ovn-sbctl --columns=name,hostname,other_config list Chassis; ovn-sbctl --columns=logical_port,ip,mac list MAC_Binding | grep -A2 %[1]s`, n.name))
	if err != nil {
		return err.Error()
	}
	return r.Out + r.Err
}

// writeFiles puts the units and settings on the disk.
func (n *bootedNode) writeFiles() {
	n.must(writeUnits(n.m))
	n.must(n.m.Write("/etc/default/ovn-k8s-node", fmt.Sprintf("CLUSTER_IP_SUBNET=%s\nMINION_SWITCH_SUBNET=%s\nNODE_NAME=%s\n", world.ClusterSubnets, n.subnet, n.name)))
	n.must(n.m.Write("/etc/systemd/system/ovsdb-server.service.d/late.conf",
		"[Service]\nTimeoutStartSec=infinity\nExecStartPre=/bin/sh -c 'sleep $(cat /etc/late 2>/dev/null || echo 0)'\n"))
	n.must(n.m.Write("/etc/systemd/system/ovn-controller.service.d/flows.conf", "[Service]\nExecStartPre=-/bin/sh -c 'ovs-ofctl dump-flows breth0 >"+flowsBefore+"'\n"))
	if n.mode == world.Dedicated && host.Datapath() == host.Userspace { // see host.HideFromKernel
		n.must(n.m.Write("/etc/systemd/system/hide.service", "[Unit]\nDefaultDependencies=no\nBefore=network-pre.target\n[Service]\nType=oneshot\n"+
			"ExecStart=/usr/sbin/nft 'table netdev hide { chain in { type filter hook ingress device \"eth1\" priority 0; policy drop; }; }'\nExecStart=/sbin/ip link set eth1 up\n[Install]\nWantedBy=multi-user.target\n"))
		n.must(n.m.Enable("hide"))
	}
}

// configure sets the settings of each host.
func (n *bootedNode) configure() {
	ca, err := os.ReadFile(n.c.Kube.CAFile)
	n.must(err)
	n.must(n.m.Write("/etc/openvswitch/k8s-ca.crt", string(ca)))
	token := func(account string) string {
		text, err := n.c.Kube.ServiceAccountToken(n.ctx, "kube-system", account)
		n.must(err)
		return text
	}
	n.must(n.m.Write("/etc/openvswitch/ovn-k8s-gateway-helper.token", token("ovn-k8s-gateway-helper")))
	n.must(n.m.Write("/etc/openvswitch/ovn-k8s-api.token", token("ovn-k8s-cni")))
	n.must(n.shellErr(fmt.Sprintf(`chmod 600 /etc/openvswitch/*.token
		ovs-vsctl set Open_vSwitch . external_ids:ovn-remote=%s external_ids:ovn-nb=%s external_ids:ovn-encap-ip=%v external_ids:ovn-encap-type=geneve \
		external_ids:ovn-bridge-datapath-type=%s external_ids:k8s-api-server='"%s"' external_ids:ovn-k8s-service-cidr='"%s"' \
		external_ids:ovn-k8s-api-token-file=/etc/openvswitch/ovn-k8s-api.token`,
		n.c.Central.SBTCP, n.c.Central.NBTCP, n.address(), host.Datapath(), n.c.APIServer(), world.ServiceSubnets)))
}

func (n *bootedNode) address() netip.Addr { return n.m.Port.Addresses[0].Addr() }

// join makes the machine a node, a gateway and a helper, and creates its Node and its pod.
func (n *bootedNode) join() {
	n.must(n.shellErr(fmt.Sprintf(`systemctl daemon-reload
		ovn-k8s-overlay minion-init --cluster-ip-subnet=%s --minion-switch-subnet=%s --node-name=%s
		systemctl enable --now ovn-k8s-node`, world.ClusterSubnets, n.subnet, n.name)))
	_, err := n.c.Kube.CreateNode(n.ctx, n.name, n.address())
	n.must(err)
	_, err = n.c.Kube.CreatePod(n.ctx, "default", n.name, n.name, nil)
	n.must(err)
	if n.mode == world.Shared {
		n.must(n.m.Write("/etc/default/ovn-k8s-gateway-helper", "HELPER_OPTIONS=--physical-bridge=breth0 --physical-interface=eth0\n"))
	}
	n.must(n.shellErr("systemctl enable --now ovn-k8s-gateway-helper"))
	if n.mode != "" {
		n.must(n.m.Write("/etc/default/ovn-k8s-gateway", "GATEWAY_OPTIONS="+n.gatewayOptions()+"\n"))
		n.must(n.shellErr("systemctl enable --now ovn-k8s-gateway"))
	}
}

// gatewayOptions returns the options of gateway-init. Each gateway serves only pods of its own
// node, so that they tell whether it works.
func (n *bootedNode) gatewayOptions() string {
	options := fmt.Sprintf("--cluster-ip-subnet=%s --node-name=%s --rampout-ip-subnets=%s", world.ClusterSubnets, n.name, n.subnet)
	port := n.m.Port
	switch n.mode {
	case world.Local:
		return options + " --local"
	case world.Dedicated:
		options, port = options+" --physical-interface=eth1", n.m.Second
	case world.Shared:
		options += " --bridge-interface=breth0"
	}
	if n.dynamic { // its IPv6 address is not known beforehand
		return options + fmt.Sprintf(" --physical-ip=%v --default-gw=%v", port.Addresses[0], port.Gateways[0])
	}
	return options + fmt.Sprintf(" --physical-ip=%v,%v --default-gw=%v,%v", port.Addresses[0], port.Addresses[1], port.Gateways[0], port.Gateways[1])
}

// A part of a machine's environment, with functions to remove it before a boot and to restore it.
type part struct {
	name        string
	cut, repair func() error
}

// parts lists all parts that can be late, except Open vSwitch.
func (n *bootedNode) parts() []part {
	filter := func(name, netns, port string) part {
		table := "late_" + n.name + "_" + name
		nft := func(text string) error {
			out, err := exec.Command("nsenter", "--net="+netns, "nft", text).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("nft %s: %w: %s", text, err, out)
			}
			return err
		}
		return part{
			name: name,
			cut: func() error {
				return nft(fmt.Sprintf("table inet %s { chain in { type filter hook input priority -9; ip saddr %v tcp dport %s drop; }; }", table, n.address(), port))
			},
			repair: func() error { return nft("delete table inet " + table) },
		}
	}
	_, api, _ := strings.Cut(strings.TrimPrefix(n.c.APIServer(), "https://"), ":")
	return []part{
		{"network", n.m.Port.Cut, n.m.Port.Mend},
		filter("NB", n.c.Master().Netns(), "6641"),
		filter("SB", n.c.Master().Netns(), "6642"),
		filter("API", n.c.Fabric.Netns(), api),
	}
}

// reboot cuts the power or reboots, with a drawn delay of every part, and waits until everything works.
func (n *bootedNode) reboot(r *rand.Rand, round int) {
	n.Helper()
	late := func() time.Duration {
		if r.IntN(4) == 0 {
			return 0
		}
		return time.Duration(r.Int64N(int64(latest)))
	}
	ovs := late()
	n.must(n.m.Write("/etc/late", fmt.Sprintf("%.1f\n", ovs.Seconds())))
	powerCut := r.IntN(2) == 0
	line := fmt.Sprintf("round %d: power cut %v, OVS %.0fs", round, powerCut, ovs.Seconds())
	n.leavePod()
	if !powerCut {
		n.must(n.m.ShutDown(n.ctx))
	}
	n.m.PowerOff()
	var last time.Duration
	timers := make(chan error)
	parts := n.parts()
	for _, p := range parts {
		n.must(p.cut())
	}
	for _, p := range parts {
		after := late()
		last = max(last, after)
		line += fmt.Sprintf(", %s %.0fs", p.name, after.Seconds())
		time.AfterFunc(after, func() { timers <- p.repair() })
	}
	began := time.Now()
	err := n.m.Boot(n.ctx)
	for range parts {
		n.must(<-timers)
	}
	n.must(err)
	if rest := max(ovs, last) - time.Since(began); rest > 0 {
		time.Sleep(rest)
	}
	complete := time.Now()
	missing := n.await(line, n.back)
	n.must(n.units())
	n.must(n.flowsFirst())
	if time.Since(complete) > 20*time.Second {
		out, _ := n.m.Try("date; tail -n 25 /var/log/openvswitch/ovn-k8s-gateway-helper.log; tail -n 30 /var/log/ovn/ovn-controller.log")
		n.Log(out.Out, n.central())
	}
	n.Logf("%s: back %.0fs after the last; missing: %s", line, time.Since(complete).Seconds(), strings.Join(missing, ", "))
}

// goBack removes the gateway and moves the addresses back to the NIC.
func (n *bootedNode) goBack() {
	n.Helper()
	if n.mode != "" {
		n.must(n.shellErr("systemctl disable --now ovn-k8s-gateway; ovn-k8s-overlay gateway-remove --node-name=" + n.name))
	}
	n.must(n.shellErr("rm -f /etc/default/ovn-k8s-gateway-helper; systemctl stop ovn-k8s-gateway-helper; systemd-run --wait --pipe --quiet ovn-k8s-util bridges-to-nic breth0; systemctl start ovn-k8s-gateway-helper"))
	n.await("bridges-to-nic", func() error {
		return n.shell("ip route show default | grep -q 'dev eth0' && ! ip link show breth0 2>/dev/null && ping -c1 -W1 198.18.0.1 >/dev/null && ping -c1 -W1 fd00:198:18::1 >/dev/null")
	})
}
