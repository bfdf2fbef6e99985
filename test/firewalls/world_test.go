package firewalls

import (
	"context"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/docs"
	"ovn-k8s/test/boot"
	"ovn-k8s/test/host"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/poll"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/require"
)

const (
	apiPort  = 6443
	nodePort = 30082
	// perWay is the number of established connections of each way.
	perWay = 25
	// back is the time in which new connections work again.
	back = 2 * time.Second
)

// A world is a machine with a management port, pods behind it, and the gateway helper as its unit. Behind the port, a
// namespace does the work of OVN's load balancers.
type world struct {
	*testing.T
	ctx     context.Context
	fabric  *host.Fabric
	cluster *kubetest.Cluster
	node    *boot.Machine
	ways    []way
	slowest time.Duration // of settled, since log
}

// A way is a way of connections.
type way struct {
	name, netns string
	to          netip.AddrPort
}

func newWorld(t *testing.T, pkg string) *world {
	t.Helper()
	packages := []string{"ifupdown"}
	if pkg != "" {
		packages = append(packages, pkg)
	}
	require.Nothing(t, require.Node, boot.Missing())
	require.Nothing(t, require.Node, boot.MissingPackages(packages...))
	require.Nothing(t, require.Cluster, kubetest.Missing())
	ctx, cancel := context.WithTimeout(context.Background(), limit.Of(30*time.Minute))
	t.Cleanup(cancel)
	w := &world{T: t, ctx: ctx}
	var err error
	w.fabric, err = host.NewFabric()
	w.must(err)
	t.Cleanup(w.fabric.Close)
	w.cluster, err = kubetest.Start(ctx, kubetest.Options{
		Without: []string{"kube-scheduler", "kube-controller-manager"}, Advertise: host.FabricIPv4().String(), Names: []string{host.FabricIPv4().String()},
		ServiceCIDR: "172.30.0.0/16", Log: func(l string) { t.Log(l) },
	})
	w.must(err)
	t.Cleanup(w.cluster.Close)
	_, err = w.fabric.Forward(apiPort, strings.TrimPrefix(w.cluster.URL, "https://"))
	w.must(err)
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin+"/", "ovn-k8s/ovn-k8s-gateway-helper").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.node, err = boot.New(boot.Options{Name: "node1", Fabric: w.fabric, Packages: packages, Programs: []string{bin + "/ovn-k8s-gateway-helper"}})
	w.must(err)
	t.Cleanup(w.node.Close)
	w.configure()
	w.must(w.node.Boot(ctx))
	w.must(w.node.Settle(ctx))
	w.overlay()
	w.services()
	w.script("systemctl start ovn-k8s-gateway-helper")
	t.Cleanup(func() {
		if t.Failed() {
			said, _ := w.node.Try("cat /var/log/openvswitch/ovn-k8s-gateway-helper.log; nft list ruleset; iptables-save; journalctl --no-pager -b -p warning -n 50")
			t.Log(said.Out, said.Err)
		}
	})
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) script(text string) string {
	w.Helper()
	out, err := w.node.Script(w.ctx, text)
	w.must(err)
	return strings.TrimSpace(out)
}

// configure writes the files of the machine that is off.
func (w *world) configure() {
	w.Helper()
	token, ca := w.token(), ""
	if text, err := os.ReadFile(w.cluster.CAFile); err == nil {
		ca = string(text)
	}
	unit, err := fs.ReadFile(docs.Files, "systemd/ovn-k8s-gateway-helper.service")
	w.must(err)
	for path, text := range map[string]string{
		"/etc/network/interfaces":                            fmt.Sprintf("auto eth0\niface eth0 inet static\n    address %v\n    gateway %v\n", w.node.Port.Addresses[0], w.node.Port.Gateways[0]),
		"/etc/systemd/system/ovn-k8s-gateway-helper.service": string(unit),
		"/etc/openvswitch/ovn-k8s-gateway-helper.token":      token,
		"/etc/openvswitch/k8s-ca.crt":                        ca,
		"/etc/default/ovn-k8s-gateway-helper":                fmt.Sprintf("HELPER_OPTIONS=--k8s-api-server=https://%v:%d --node-name=node1\n", host.FabricIPv4(), apiPort),
	} {
		w.must(w.node.Write(path, text))
	}
	w.must(w.node.Enable("networking", "openvswitch-switch"))
}

func (w *world) token() string {
	w.Helper()
	rbac, err := fs.ReadFile(docs.Files, "rbac.yaml")
	w.must(err)
	w.must(w.cluster.Apply(w.ctx, rbac))
	token, err := w.cluster.ServiceAccountToken(w.ctx, "kube-system", "ovn-k8s-gateway-helper")
	w.must(err)
	return token
}

// overlay makes the management port, and behind it a namespace with a pod and the ClusterIP.
func (w *world) overlay() {
	w.Helper()
	w.script(fmt.Sprintf(`set -e
		ovs-vsctl --may-exist add-br br-int -- set Bridge br-int datapath_type=%s fail_mode=secure -- set Open_vSwitch . external_ids:ovn-encap-ip=%v \
			external_ids:ovn-k8s-firewall=%s
		ovs-ofctl add-flow br-int priority=0,actions=ALL
		ovs-vsctl add-port br-int k8s-node1 -- set Interface k8s-node1 type=internal external_ids:iface-id=k8s-node1
		ip link set k8s-node1 up
		ip addr add 10.128.1.2/24 dev k8s-node1
		ip route add 172.30.0.0/16 via 10.128.1.1
		ethtool -K k8s-node1 tx off >/dev/null
		mkdir -p /run/netns
		ip netns add pods
		ip link add pods0 type veth peer name eth0 netns pods
		ip link set pods0 up
		ip -n pods link set lo up
		ip -n pods link set eth0 up
		for a in 1 3; do ip -n pods addr add 10.128.1.$a/24 dev eth0; done
		ip -n pods addr add 172.30.0.82/32 dev lo
		ip -n pods route add default via 10.128.1.2
		ip netns exec pods ethtool -K eth0 tx off >/dev/null
		ovs-vsctl add-port br-int pods0`, host.Datapath(), w.address(), setting()))
	for name, at := range map[string]struct {
		netns string
		port  int
	}{"cluster": {w.node.Path("/run/netns/pods"), 80}, "host": {w.node.Netns(), 8081}} {
		server, err := probe.Serve(at.netns, name, at.port)
		w.must(err)
		w.Cleanup(server.Close)
	}
}

// setting is the setting ovn-k8s-firewall.
func setting() string {
	if set := os.Getenv("OVNK8S_FIREWALL"); set != "" {
		return set
	}
	return "auto"
}

func (w *world) address() netip.Addr { return w.node.Port.Addresses[0].Addr() }

// services makes a Service of a pod and one of the host's own network, and lists the ways to them.
func (w *world) services() {
	w.Helper()
	w.service("web", "172.30.0.82", nodePort, "10.128.1.3", 8080)
	w.service("own", "172.30.0.83", nodePort+1, w.address().String(), 8081)
	outside, here := w.fabric.Netns(), w.node.Netns()
	w.ways = []way{
		{"outside to the NodePort", outside, probe.Address(w.address(), nodePort)},
		{"outside to the NodePort of the host's own endpoint", outside, probe.Address(w.address(), nodePort+1)},
		{"host to its NodePort", here, probe.Address(w.address(), nodePort)},
		{"host to the ClusterIP", here, netip.MustParseAddrPort("172.30.0.82:80")},
		{"host to the ClusterIP of its own endpoint", here, netip.MustParseAddrPort("172.30.0.83:80")},
	}
}

func (w *world) service(name, clusterIP string, nodePort int32, endpoint string, port int32) {
	w.Helper()
	api, node, protocol, no := w.cluster.Client(), "node1", corev1.ProtocolTCP, ""
	_, err := api.CoreV1().Services("default").Create(w.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: clusterIP, Ports: []corev1.ServicePort{{Protocol: protocol, Port: 80, NodePort: nodePort}},
		},
	}, metav1.CreateOptions{})
	w.must(err)
	_, err = api.DiscoveryV1().EndpointSlices("default").Create(w.ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &no, Protocol: &protocol, Port: &port}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{endpoint}, NodeName: &node}},
	}, metav1.CreateOptions{})
	w.must(err)
}

// settled waits until new connections work on each way. After a harm, it fails the test if that takes longer than back.
func (w *world) settled(after string) {
	w.Helper()
	began := time.Now()
	bound := limit.Of(back)
	if after == "" {
		bound = limit.Of(time.Minute)
	}
	for _, to := range w.ways {
		ctx, cancel := context.WithDeadline(w.ctx, began.Add(bound))
		err := poll.Until(ctx, func() error {
			ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			_, err := probe.Probe{Netns: to.netns, Network: "tcp", Address: to.to}.Once(ctx)
			return err
		})
		cancel()
		if err != nil {
			w.Fatalf("%s: %s: not back within %v: %v", after, to.name, bound, err)
		}
	}
	w.slowest = max(w.slowest, time.Since(began))
}

// log prints the longest time until new connections worked.
func (w *world) log(harm string, rounds int) {
	w.Helper()
	w.Logf("%s: %d rounds, new connections on all ways work after at most %v", harm, rounds, w.slowest.Round(time.Millisecond))
	w.slowest = 0
}

// A session is an established connection.
type session struct {
	way
	*probe.Session
}

// open opens connections on all ways.
func (w *world) open() (all []session) {
	w.Helper()
	for _, to := range w.ways {
		for range perWay {
			s, err := probe.OpenSession(w.ctx, to.netns, to.to)
			w.must(err)
			w.Cleanup(func() { s.Close() })
			all = append(all, session{to, s})
		}
	}
	return all
}

// finish checks that a connection goes on, and never broke.
func (s session) finish(w *world) {
	w.Helper()
	lines := s.Typed().Lines
	err := poll.Until(w.ctx, func() error {
		if s.Typed().Lines > lines {
			return nil
		}
		return fmt.Errorf("no answer since %v", s.Typed().Last)
	})
	if got := s.Typed(); err != nil || got.Resets > 0 {
		w.Errorf("an established connection, %s: %+v, %v", s.name, got, err)
	}
}

// remove ends the helper, and checks that nothing of ours is left.
func (w *world) remove() {
	w.Helper()
	w.script("systemctl stop ovn-k8s-gateway-helper; ovn-k8s-gateway-helper --remove")
	left := w.script("nft list ruleset; iptables-save")
	for line := range strings.Lines(left) {
		if lower := strings.ToLower(line); (strings.Contains(lower, "svc-") || strings.Contains(lower, "ovn-k8s-")) && !strings.Contains(lower, "claimed") {
			w.Errorf("left: %s", line)
		}
	}
}
