package gateway

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/firewall"
	"ovn-k8s/lib/gateway/connections"
	"ovn-k8s/test/namespace"
)

// A Service refused by the kernel holds back nothing else: beside a firewall that drops, packets are accepted, and hostPorts
// are reached at 127.0.0.1.
func TestARefusedServiceHoldsBackNothing(t *testing.T) {
	namespace.Load(t, "")
	script := func(text string) string {
		t.Helper()
		out, err := exec.Command("/bin/sh", "-ec", text).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", text, err, out)
		}
		return string(out)
	}
	script("iptables -P FORWARD DROP; ip link add k8s-node1 type veth peer name pods")
	s := &service.Resolved{
		Service: service.Service{
			Key: service.Key{Namespace: "default", Name: "forever"}, Type: corev1.ServiceTypeNodePort, Ours: true,
			ClusterIPs: []netip.Addr{netip.MustParseAddr("172.30.0.10")},
			Ports:      []service.Port{{Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}},
			Affinity:   1 << 35, // nf_msecs_to_jiffies64 in net/netfilter/nf_tables_api.c: ERANGE
		},
		Endpoints: []service.Endpoints{{{Host: &service.Host{Addr: netip.MustParseAddr("10.128.1.3"), Node: "node1", State: service.Serving}, Port: 8080}}},
	}
	web := hostport.Pod{
		Pod:   pod.Pod{Key: pod.Key{Namespace: "default", Name: "web"}, HostPorts: []pod.HostPort{{Protocol: corev1.ProtocolTCP, Port: 80, Target: 8080}}},
		Addrs: []netip.Addr{netip.MustParseAddr("10.128.1.4")},
	}
	log := logrus.NewEntry(logrus.New())
	e := &engine{
		log: log, tables: map[netip.Addr]*nodeport.Tables{nodeport.IPv4: {}}, chosen: map[string]bool{},
		tracked: map[netip.Addr]*connections.Host{nodeport.IPv4: {Family: nodeport.IPv4, Log: log, Again: func() {}}},
	}
	err := e.syncRules(t.Context(), firewall.New(config.NFTables, nodeport.IPv4), view{
		host:   nodeport.Host{Node: "node1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Management: "k8s-node1"},
		synced: true, frontends: service.AllFrontends([]*service.Resolved{s}, service.Network{}), pods: []hostport.Pod{web},
	})
	if !errors.Is(err, firewall.ErrRefused) || !strings.Contains(err.Error(), "default/forever") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	if got := script("iptables -S"); !strings.Contains(got, "-A FORWARD -j OVN-SVC-FORWARD\n") {
		t.Errorf("nothing accepts: %s", got)
	}
	if got, err := os.ReadFile("/proc/sys/net/ipv4/conf/k8s-node1/route_localnet"); err != nil || strings.TrimSpace(string(got)) != "1" {
		t.Errorf("hostPorts at 127.0.0.1: route_localnet is %q, %v", got, err)
	}
}
