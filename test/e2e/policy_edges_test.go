package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// fromBlocks returns a policy for all pods of the namespace default: only the
// addresses in list may reach them.
func fromBlocks(list []netip.Addr) string {
	var blocks []string
	for _, a := range list {
		blocks = append(blocks, fmt.Sprintf("{ipBlock: {cidr: '%s'}}", netip.PrefixFrom(a, a.BitLen())))
	}
	return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: blocks, namespace: default}\n" +
		"spec: {podSelector: {}, ingress: [{from: [" + strings.Join(blocks, ", ") + "]}]}\n"
}

// A nodePortCase is a Service reached from outside through NodePorts of a node.
type nodePortCase struct {
	mode    string // of the node's gateway
	policy  corev1.ServiceExternalTrafficPolicy
	service string
	answers []world.Endpoint
	// seen are the source addresses seen by the pod, other are other addresses.
	seen, other []netip.Addr
}

// Policies match connections from outside through a NodePort by the source address
// seen by the pod: the client's with externalTrafficPolicy Local; otherwise the
// gateway router's, or without a router the node's.
func TestPoliciesOfNodePorts(t *testing.T) {
	p := pods(t, map[string]string{"web-near": "minion1", "web-far": "minion2", "away-far": "minion2"})
	near, far, away := p["web-near"], p["web-far"], p["away-far"]
	client, node := surround(t).Outside, cluster.Node("minion1")
	router := firstGateway([]netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")})
	const byCluster, byLocal = corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal
	cases := []nodePortCase{
		{world.Dedicated, byCluster, "web", []world.Endpoint{near, far}, router, client.Addresses},
		{world.Dedicated, byLocal, "web", []world.Endpoint{near}, client.Addresses, router},
		{world.Shared, byCluster, "web", []world.Endpoint{near, far}, router, client.Addresses},
		{world.Shared, byLocal, "web", []world.Endpoint{near}, client.Addresses, router},
		// A node may always reach its own pods.
		{world.Local, byCluster, "away", []world.Endpoint{away}, node.Management, client.Addresses},
		{world.Local, byLocal, "web", []world.Endpoint{near}, client.Addresses, node.Management},
	}
	for _, mode := range world.Modes() {
		t.Run(mode, func(t *testing.T) {
			at := addGateway(t, node, mode)
			if mode == world.Local {
				at = nodeAddrs(node.Name)
			}
			for _, c := range cases {
				if c.mode == mode {
					t.Run(string(c.policy), func(t *testing.T) { c.try(t, client, at) })
				}
			}
		})
	}
}

// try allows the client, denies it, and allows it again.
func (c nodePortCase) try(t *testing.T, client world.Endpoint, at []netip.Addr) {
	t.Helper()
	t.Cleanup(func() { dropPolicies(t, "default") })
	s := service(t, c.service, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, c.policy
	})
	attempts := nodePortWays(client, at, s, c.answers, c.seen)
	try(t, attempts)
	// A Service without endpoints refuses connections: wait until that has ended.
	settled(t, c.service, map[string]int{"web": 2, "away": 1}[c.service])
	if err := cluster.ForgetFlows(t.Context()); err != nil {
		t.Fatal(err)
	}
	var open []talk
	for _, w := range attempts {
		open = append(open, openTalk(t, w.String(), probe.Probe{Netns: w.From.Netns, Network: w.Network, Address: w.Address}))
	}
	for _, allowed := range []bool{true, false, true} {
		from := c.other
		if allowed {
			from = c.seen
		}
		if err := cluster.Kube.Apply(t.Context(), []byte(fromBlocks(from))); err != nil {
			t.Fatal(err)
		}
		if start := time.Now(); allowed {
			checkKept(t, open)
		} else {
			checkCut(t, start, open)
			open = nil
		}
		for _, w := range attempts {
			q := packet{text: w.String(), probe: probe.Probe{Netns: w.From.Netns, Network: w.Network, Address: w.Address}}
			if err := q.becomes(allowed); err != nil {
				t.Errorf("%v, policy for %v: want %t: %v", w, from, allowed, err)
			}
		}
	}
}

// An isolated pod still gets the errors for its own connections to a closed port: a
// TCP reset, and an ICMP error.
func TestErrorsOfAllowedConnectionsPass(t *testing.T) {
	y := newYard(t)
	const closed = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: to-w, namespace: x}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: w}}}]}]
`
	if err := cluster.Kube.Apply(t.Context(), []byte(closed)); err != nil {
		t.Fatal(err)
	}
	y.pass(t, []string{"w/a -> x/a:80/tcp", "x/a -> z/a:80/tcp"}, false)
	for _, a := range y.pods["w/a"].Addresses {
		refused(t, y.pods["x/a"], netip.AddrPortFrom(a, 99))
	}
}

// With a namespace's annotation the pod's node logs verdicts of its policies.
func TestPoliciesLog(t *testing.T) {
	y := newYard(t)
	annotate := func(value string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, names.ACLLogging, value)
		_, err := cluster.Kube.Client().CoreV1().Namespaces().Patch(t.Context(), "x", types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	annotate(`"{\"deny\": \"alert\", \"allow\": \"notice\"}"`)
	if err := cluster.Kube.Apply(t.Context(), []byte(onlyB)); err != nil {
		t.Fatal(err)
	}
	from := func(who string) string { return "nw_src=" + y.pods[who].Addresses[0].String() }
	for _, tt := range []struct {
		line   string
		passes bool
		want   []string
	}{
		{"w/a -> x/a:80/tcp4", false, []string{`name="x/pod=a/ingress/deny"`, "verdict=drop", "severity=alert", "direction=to-lport", "tcp", from("w/a"), "tp_dst=80"}},
		{"w/b -> x/a:81/udp4", true, []string{`name="x/only-b/ingress/0"`, "verdict=allow", "severity=notice", "direction=to-lport", "udp", from("w/b"), "tp_dst=81"}},
	} {
		var log string
		eventually(t, fmt.Sprintf("ovn-controller logs %q", tt.want), func() bool {
			y.pass(t, []string{tt.line}, tt.passes)
			log = sh(t, cluster.Node(places["x/a"]), "grep -h acl_log /var/log/*/ovn-controller.log || :")
			return slices.ContainsFunc(strings.Split(log, "\n"), func(line string) bool { return holdsAll(line, tt.want) })
		}, &log)
	}
	annotate("null")
}

func holdsAll(line string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(line, w) {
			return false
		}
	}
	return true
}

// manyOf returns a policy for the pod "web": two addresses and many subnets may
// reach it at many ports of each protocol.
func manyOf(n int, from []netip.Addr) string {
	var ports, blocks []string
	for i := range n {
		for _, protocol := range []string{"TCP", "UDP"} {
			ports = append(ports, fmt.Sprintf("{protocol: %s, port: %d}", protocol, kubelet.DefaultPort+2*i))
		}
		blocks = append(blocks, fmt.Sprintf("{ipBlock: {cidr: 203.0.%d.0/25}}, {ipBlock: {cidr: '2001:db8:%x::/64'}}", i, i))
	}
	for _, a := range from {
		blocks = append(blocks, fmt.Sprintf("{ipBlock: {cidr: '%s'}}", netip.PrefixFrom(a, a.BitLen())))
	}
	return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: many, namespace: default}\n" +
		"spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [" + strings.Join(blocks, ", ") + "], ports: [" + strings.Join(ports, ", ") + "]}]}\n"
}

// The number of flows of a rule is about the sum of its ports and subnets, not the
// product: otherwise authors of policies could exhaust every node's memory.
func TestFlowsOfManyPortsAndSubnets(t *testing.T) {
	p := pods(t, map[string]string{"web": "minion1", "friend": "minion2", "stranger": "minion2"})
	web, friend, stranger := p["web"], p["friend"], p["stranger"]
	t.Cleanup(func() { dropPolicies(t, "default") })
	flows := func() (n int) {
		t.Helper()
		consistent(t)
		if _, err := cluster.Central.NBCtl("--wait=hv", "sync"); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(sh(t, cluster.Node("minion1"), "ovs-ofctl dump-flows br-int | wc -l"), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := flows()
	const many = 40
	if err := cluster.Kube.Apply(t.Context(), []byte(manyOf(many, friend.Addresses))); err != nil {
		t.Fatal(err)
	}
	// The sum of ports and subnets, for new and for other packets. The product
	// would be much larger.
	if n := flows() - before; n < 4*many || n > many*many {
		t.Errorf("%d ports and %d subnets have %d flows", 2*many, 2*many, n)
	}
	for _, network := range []string{"tcp", "udp"} {
		for _, a := range web.Addresses {
			at := probe.Address(a, kubelet.DefaultPort)
			if who := ask(t, friend, network, at); who != web.Name {
				t.Errorf("%s at %v: %s answers", network, at, who)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if err := (probe.Probe{Netns: stranger.Netns, Network: network, Address: at}).Silence(ctx, 2); err != nil {
				t.Error(err)
			}
			cancel()
		}
	}
}
