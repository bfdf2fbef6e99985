package loadbalancer

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/test/objects"
)

// cluster is a cluster of hosts with an address of each family.
func cluster() Inputs {
	pods := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("fd00::/48")}
	join := []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")}
	return Inputs{
		Network: service.Network{
			Ranges: servicecidr.Ranges{netip.MustParsePrefix("172.16.1.0/24"), netip.MustParsePrefix("fd02::/112")}, Inside: append(pods, join...),
			Hosts: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::1")},
		},
		Nodes: []service.Node{{Name: "n1", Zone: "east"}, {Name: "n2", Zone: "west"}, {Name: "n3", Zone: "west"}, {Name: "n4", Zone: ""}},
		Gateways: map[string]Gateway{
			"gw1": gatewayAt("n1", "198.18.1.1"), "gw2": gatewayAt("n2", "198.18.1.2"), "gw9": {},
		},
		Selection: Selection{Userspace: true}, Subnets: pods, Addresses: [2]int{1, 1},
	}
}

// gatewayAt is a gateway with one address.
func gatewayAt(node, addr string) Gateway {
	at := []netip.Addr{netip.MustParseAddr(addr)}
	return Gateway{node, at, at}
}

// balancers are the load balancers of a Service as text, by their names without the common prefix.
func balancers(s *corev1.Service, slices ...*discoveryv1.EndpointSlice) map[string]string {
	r := resolve(s, slices...)
	out := map[string]string{}
	for _, row := range New(&r, cluster()).Rows() {
		id := strings.TrimPrefix(row.ID, "service/default/web/")
		out[id] = short(row, id)
	}
	return out
}

// short is a row without the parts common to all.
func short(row nb.Row, id string) string {
	text := strings.TrimPrefix(row.String(), row.Table+" "+row.ID+" ")
	text = strings.Replace(text, ` name="`+names.LoadBalancer(row.ID)+`"`, "", 1)
	return strings.Replace(text, `name="`+names.LoadBalancer(row.ID)+`" `, "", 1)
}

func TestRows(t *testing.T) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	a, six := objects.Slice("a", 8080, "10.0.1.3@n1", "10.0.2.4@n2"), objects.Slice("six", 8080, "fd00::3@n1")
	for _, tt := range []struct {
		name   string
		change func(*corev1.Service)
		slices []*discoveryv1.EndpointSlice
		want   map[string]string
	}{
		{"check 43: cluster address", nil, []*discoveryv1.EndpointSlice{a}, map[string]string{
			"tcp": `options={reject="true"} protocol="tcp" vips={172.16.1.10:80="10.0.1.3:8080,10.0.2.4:8080"} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
		}},
		{"check 43: no endpoints are refused", nil, nil, map[string]string{
			"tcp": `options={reject="true", skip_snat="true"} protocol="tcp" vips={172.16.1.10:80=""} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
		}},
		{"dual stack in one row", objects.Dual, []*discoveryv1.EndpointSlice{a, six}, map[string]string{
			"tcp": `options={reject="true"} protocol="tcp" vips={172.16.1.10:80="10.0.1.3:8080,10.0.2.4:8080", [fd02::a]:80="[fd00::3]:8080"} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
		}},
		{"check 45: NodePort on each host", objects.NodePort, []*discoveryv1.EndpointSlice{a}, map[string]string{
			"tcp":       `options={reject="true"} protocol="tcp" vips={172.16.1.10:80="10.0.1.3:8080,10.0.2.4:8080"} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
			"tcp/node4": `options={address-family="ipv4", reject="true", template="true"} protocol="tcp" selection_fields=["ip_dst" "ip_src" "tp_dst" "tp_src"] vips={^ovn_k8s_address4_0:30082="10.0.1.3:8080,10.0.2.4:8080"} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
		}},
		{"check 46: external IP", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"203.0.113.9"} }, []*discoveryv1.EndpointSlice{a}, map[string]string{
			"tcp": `options={neighbor_responder="none", reject="true"} protocol="tcp" selection_fields=["ip_dst" "ip_src" "tp_dst" "tp_src"] vips={172.16.1.10:80="10.0.1.3:8080,10.0.2.4:8080", 203.0.113.9:80="10.0.1.3:8080,10.0.2.4:8080"} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
		}},
		{"internal policy Local", func(s *corev1.Service) { objects.Dual(s); s.Spec.InternalTrafficPolicy = &local }, []*discoveryv1.EndpointSlice{a, six}, map[string]string{
			"tcp/node4": `options={address-family="ipv4", reject="true", template="true"} protocol="tcp" vips={172.16.1.10:80="^ovn_k8s_default.web.tcp.80.near4"} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
			"tcp/node6": `options={address-family="ipv6", reject="true", template="true"} protocol="tcp" vips={^ovn_k8s_default.web.vip.fd02_0000_0000_0000_0000_0000_0000_000a:80="^ovn_k8s_default.web.tcp.80.near6"} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
		}},
		{"external policy Local", func(s *corev1.Service) {
			objects.NodePort(s)
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}, []*discoveryv1.EndpointSlice{a}, map[string]string{
			"tcp":        `options={reject="true"} protocol="tcp" vips={172.16.1.10:80="10.0.1.3:8080,10.0.2.4:8080"} in=Load_Balancer_Group/ovn-k8s-switches.load_balancer`,
			"tcp/node4":  `options={address-family="ipv4", reject="true", template="true"} protocol="tcp" vips={^ovn_k8s_address4_0:30082="10.0.1.3:8080,10.0.2.4:8080"} in=Load_Balancer_Group/ovn-k8s-switches.load_balancer`,
			"tcp/local4": `options={address-family="ipv4", reject="true", skip_snat="true", template="true"} protocol="tcp" vips={^ovn_k8s_address4_0:30082="^ovn_k8s_default.web.tcp.80.local4"} in=Load_Balancer_Group/ovn-k8s-gateways.load_balancer`,
		}},
		{"external policy Local and a host's own endpoint: where that is, clients do not keep their address", func(s *corev1.Service) {
			objects.NodePort(s)
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}, []*discoveryv1.EndpointSlice{objects.Slice("a", 8080, "192.0.2.2@n2", "10.0.3.4@n3")}, map[string]string{
			"tcp":           `options={reject="true"} protocol="tcp" vips={172.16.1.10:80="10.0.3.4:8080,192.0.2.2:8080"} in=Load_Balancer_Group/ovn-k8s-switches.load_balancer`,
			"tcp/node4":     `options={address-family="ipv4", reject="true", template="true"} protocol="tcp" vips={^ovn_k8s_address4_0:30082="10.0.3.4:8080,192.0.2.2:8080"} in=Load_Balancer_Group/ovn-k8s-switches.load_balancer`,
			"tcp/local/gw2": `options={neighbor_responder="none", reject="true"} protocol="tcp" vips={198.18.1.2:30082="192.0.2.2:8080"} in=Logical_Router/GR_gw2.load_balancer`,
		}},
		// P12: OVN's affinity_timeout drops each client's first packet. L3: templates need no product of nodes and endpoints.
		{"affinity: endpoints by the client's address, on each host", func(s *corev1.Service) {
			objects.NodePort(s)
			objects.Sticky(s)
		}, []*discoveryv1.EndpointSlice{a}, map[string]string{
			"tcp":       `options={reject="true"} protocol="tcp" selection_fields=["ip_src"] vips={172.16.1.10:80="10.0.1.3:8080,10.0.2.4:8080"} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
			"tcp/node4": `options={address-family="ipv4", reject="true", template="true"} protocol="tcp" selection_fields=["ip_src"] vips={^ovn_k8s_address4_0:30082="10.0.1.3:8080,10.0.2.4:8080"} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
		}},
		{"affinity of both families, by MAC where ip_src is IPv4's only", func(s *corev1.Service) {
			objects.Dual(s)
			objects.NodePort(s)
			objects.Sticky(s)
		}, []*discoveryv1.EndpointSlice{six}, map[string]string{
			"tcp":       `options={reject="true", skip_snat="true"} protocol="tcp" selection_fields=["ip_src"] vips={172.16.1.10:80=""} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
			"tcp/ip6":   `options={reject="true"} protocol="tcp" selection_fields=["eth_src"] vips={[fd02::a]:80="[fd00::3]:8080"} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
			"tcp/node4": `options={address-family="ipv4", reject="true", skip_snat="true", template="true"} protocol="tcp" selection_fields=["ip_src"] vips={^ovn_k8s_address4_0:30082=""} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
			"tcp/node6": `options={address-family="ipv6", reject="true", template="true"} protocol="tcp" selection_fields=["eth_src"] vips={^ovn_k8s_address6_0:30082="[fd00::3]:8080"} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
		}},
		{"affinity and external policy Local", func(s *corev1.Service) {
			objects.NodePort(s)
			objects.Sticky(s)
			s.Spec.ExternalIPs, s.Spec.ExternalTrafficPolicy = []string{"203.0.113.9"}, corev1.ServiceExternalTrafficPolicyLocal
		}, []*discoveryv1.EndpointSlice{objects.Slice("a", 8080, "10.0.1.3@n1")}, map[string]string{
			"tcp":        `options={reject="true"} protocol="tcp" selection_fields=["ip_src"] vips={172.16.1.10:80="10.0.1.3:8080", 203.0.113.9:80="10.0.1.3:8080"} in=Load_Balancer_Group/ovn-k8s-switches.load_balancer`,
			"tcp/node4":  `options={address-family="ipv4", reject="true", template="true"} protocol="tcp" selection_fields=["ip_src"] vips={^ovn_k8s_address4_0:30082="10.0.1.3:8080"} in=Load_Balancer_Group/ovn-k8s-switches.load_balancer`,
			"tcp/local4": `options={address-family="ipv4", reject="true", skip_snat="true", template="true"} protocol="tcp" selection_fields=["ip_src"] vips={203.0.113.9:80="^ovn_k8s_default.web.tcp.80.local4", ^ovn_k8s_address4_0:30082="^ovn_k8s_default.web.tcp.80.local4"} in=Load_Balancer_Group/ovn-k8s-gateways.load_balancer`,
		}},
		{"affinity and internal policy Local", func(s *corev1.Service) {
			objects.Sticky(s)
			s.Spec.InternalTrafficPolicy = &local
		}, []*discoveryv1.EndpointSlice{a}, map[string]string{
			"tcp/node4": `options={address-family="ipv4", reject="true", template="true"} protocol="tcp" selection_fields=["ip_src"] vips={172.16.1.10:80="^ovn_k8s_default.web.tcp.80.near4"} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
		}},
		{"hints of zones: a load balancer for each zone, and one for all other nodes", nil, []*discoveryv1.EndpointSlice{objects.Slice("a", 8080, "10.0.1.3@n1 zone=east", "10.0.2.4@n2 zone=west")}, map[string]string{
			"tcp/near/others":    `options={reject="true"} protocol="tcp" vips={172.16.1.10:80="10.0.1.3:8080,10.0.2.4:8080"} in=Logical_Switch/n4.load_balancer`,
			"tcp/near/zone/east": `options={reject="true"} protocol="tcp" vips={172.16.1.10:80="10.0.1.3:8080"} in=Logical_Switch/n1.load_balancer`,
			"tcp/near/zone/west": `options={reject="true"} protocol="tcp" vips={172.16.1.10:80="10.0.2.4:8080"} in=Logical_Switch/n2.load_balancer in=Logical_Switch/n3.load_balancer`,
		}},
		{"hints of nodes, and of zones for nodes without an endpoint", nil, []*discoveryv1.EndpointSlice{objects.Slice("a", 8080, "10.0.1.3@n1 zone=east node=n1", "10.0.2.4@n2 zone=west node=n2")}, map[string]string{
			"tcp/near/node/n1":   `options={reject="true"} protocol="tcp" vips={172.16.1.10:80="10.0.1.3:8080"} in=Logical_Switch/n1.load_balancer`,
			"tcp/near/node/n2":   `options={reject="true"} protocol="tcp" vips={172.16.1.10:80="10.0.2.4:8080"} in=Logical_Switch/n2.load_balancer`,
			"tcp/near/others":    `options={reject="true"} protocol="tcp" vips={172.16.1.10:80="10.0.1.3:8080,10.0.2.4:8080"} in=Logical_Switch/n4.load_balancer`,
			"tcp/near/zone/west": `options={reject="true"} protocol="tcp" vips={172.16.1.10:80="10.0.2.4:8080"} in=Logical_Switch/n3.load_balancer`,
		}},
		{"external policy Local without endpoints: refused, at an IPv6 address too", func(s *corev1.Service) {
			objects.Dual(s)
			s.Spec.ExternalIPs, s.Spec.ExternalTrafficPolicy = []string{"2001:db8::9"}, corev1.ServiceExternalTrafficPolicyLocal
		}, nil, map[string]string{
			"tcp":         `options={reject="true", skip_snat="true"} protocol="tcp" vips={172.16.1.10:80="", [2001:db8::9]:80="", [fd02::a]:80=""} in=Load_Balancer_Group/ovn-k8s-switches.load_balancer`,
			"tcp/refused": `options={neighbor_responder="none", reject="true", skip_snat="true"} protocol="tcp" vips={[2001:db8::9]:80=""} in=Load_Balancer_Group/ovn-k8s-gateways.load_balancer`,
		}},
		{"check 50: load balancer address, that of a proxy not", func(s *corev1.Service) {
			proxy := corev1.LoadBalancerIPModeProxy
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}, {IP: "198.51.100.2", IPMode: &proxy}}
		}, []*discoveryv1.EndpointSlice{a}, map[string]string{
			"tcp": `options={neighbor_responder="none", reject="true"} protocol="tcp" selection_fields=["ip_dst" "ip_src" "tp_dst" "tp_src"] vips={172.16.1.10:80="10.0.1.3:8080,10.0.2.4:8080", 198.51.100.1:80="10.0.1.3:8080,10.0.2.4:8080"} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
		}},
		{"source ranges of one family", func(s *corev1.Service) {
			objects.Dual(s)
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "198.51.100.7/32"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}, {IP: "2001:db8::9"}}
		}, []*discoveryv1.EndpointSlice{a}, map[string]string{
			"tcp":            `options={neighbor_responder="none", reject="true"} protocol="tcp" selection_fields=["ip_dst" "ip_src" "tp_dst" "tp_src"] vips={172.16.1.10:80="10.0.1.3:8080,10.0.2.4:8080", 198.51.100.1:80="10.0.1.3:8080,10.0.2.4:8080", [2001:db8::9]:80="", [fd02::a]:80=""} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
			"sources/closed": `action="drop" direction="from-lport" match="(ip4.dst == 198.51.100.1 && tcp.dst == 80) || (ip6.dst == 2001:db8::9 && tcp.dst == 80)" priority=1000 in=Port_Group/ovn_k8s_entries.acls`,
			"sources/open":   `action="allow" direction="from-lport" match="(ip4.dst == 198.51.100.1 && tcp.dst == 80 && ip4.src == {192.0.2.0/24, 198.51.100.7/32})" priority=1001 in=Port_Group/ovn_k8s_entries.acls`,
		}},
		{"source ranges of several addresses", func(s *corev1.Service) {
			objects.Dual(s)
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}, corev1.ServicePort{Name: "tls", Port: 443})
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "2001:db8:1::/48", "198.51.100.7/32"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}, {IP: "2001:db8::9"}, {IP: "198.51.100.2"}}
		}, nil, map[string]string{
			"tcp":            `options={neighbor_responder="none", reject="true", skip_snat="true"} protocol="tcp" selection_fields=["ip_dst" "ip_src" "tp_dst" "tp_src"] vips={172.16.1.10:443="", 172.16.1.10:80="", 198.51.100.1:443="", 198.51.100.1:80="", 198.51.100.2:443="", 198.51.100.2:80="", [2001:db8::9]:443="", [2001:db8::9]:80="", [fd02::a]:443="", [fd02::a]:80=""} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
			"udp":            `options={ct_flush="true", neighbor_responder="none", reject="true", skip_snat="true"} protocol="udp" selection_fields=["ip_dst" "ip_src" "tp_dst" "tp_src"] vips={172.16.1.10:53="", 198.51.100.1:53="", 198.51.100.2:53="", [2001:db8::9]:53="", [fd02::a]:53=""} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
			"sources/closed": `action="drop" direction="from-lport" match="(ip4.dst == {198.51.100.1, 198.51.100.2} && (tcp.dst == {80, 443} || udp.dst == 53)) || (ip6.dst == 2001:db8::9 && (tcp.dst == {80, 443} || udp.dst == 53))" priority=1000 in=Port_Group/ovn_k8s_entries.acls`,
			"sources/open":   `action="allow" direction="from-lport" match="(ip4.dst == {198.51.100.1, 198.51.100.2} && (tcp.dst == {80, 443} || udp.dst == 53) && ip4.src == {192.0.2.0/24, 198.51.100.7/32}) || (ip6.dst == 2001:db8::9 && (tcp.dst == {80, 443} || udp.dst == 53) && ip6.src == 2001:db8:1::/48)" priority=1001 in=Port_Group/ovn_k8s_entries.acls`,
		}},
		{"source ranges that let everybody in, and an external IP", func(s *corev1.Service) {
			objects.Dual(s)
			s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, []string{"2001:db8::9"}
			s.Spec.LoadBalancerSourceRanges = []string{"0.0.0.0/0"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
		}, nil, map[string]string{
			"tcp": `options={neighbor_responder="none", reject="true", skip_snat="true"} protocol="tcp" selection_fields=["ip_dst" "ip_src" "tp_dst" "tp_src"] vips={172.16.1.10:80="", 198.51.100.1:80="", [2001:db8::9]:80="", [fd02::a]:80=""} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
		}},
		{"source ranges of an address that is an external IP, too", func(s *corev1.Service) {
			objects.Dual(s)
			s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, []string{"2001:db8::9", "198.51.100.1"}
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
		}, nil, map[string]string{
			"tcp":            `options={neighbor_responder="none", reject="true", skip_snat="true"} protocol="tcp" selection_fields=["ip_dst" "ip_src" "tp_dst" "tp_src"] vips={172.16.1.10:80="", 198.51.100.1:80="", [2001:db8::9]:80="", [fd02::a]:80=""} in=Load_Balancer_Group/ovn-k8s-cluster.load_balancer`,
			"sources/closed": `action="drop" direction="from-lport" match="(ip4.dst == 198.51.100.1 && tcp.dst == 80)" priority=1000 in=Port_Group/ovn_k8s_entries.acls`,
			"sources/open":   `action="allow" direction="from-lport" match="(ip4.dst == 198.51.100.1 && tcp.dst == 80 && ip4.src == 192.0.2.0/24)" priority=1001 in=Port_Group/ovn_k8s_entries.acls`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := objects.Web()
			if tt.change != nil {
				tt.change(s)
			}
			if diff := cmp.Diff(tt.want, balancers(s, tt.slices...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// P13: endpoints are chosen by the ports of connections only where a chassis has the userspace datapath; affinity is a
// hash of the client's address everywhere, in one row where the schema has a field for IPv6.
func TestSelection(t *testing.T) {
	s := objects.Web(objects.Dual, objects.NodePort, func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"203.0.113.9"} })
	fields := func(s *corev1.Service, sel Selection) string {
		at, all := cluster(), map[string]bool{}
		at.Selection = sel
		r := resolve(s, objects.Slice("a", 8080, "10.0.1.3@n1"))
		for _, row := range New(&r, at).Rows() {
			all[fmt.Sprint(row.Model.(*nbdb.LoadBalancer).SelectionFields)] = true
		}
		return fmt.Sprint(slices.Sorted(maps.Keys(all)))
	}
	for sel, want := range map[Selection]string{
		{}:                                  "[[]]",
		{Userspace: true}:                   "[[ip_dst ip_src tp_dst tp_src]]",
		{IPv6Source: true}:                  "[[]]",
		{Userspace: true, IPv6Source: true}: "[[ip_dst ip_src tp_dst tp_src]]",
	} {
		if got := fields(s, sel); got != want {
			t.Errorf("%+v: %s, want %s", sel, got, want)
		}
	}
	objects.Sticky(s)
	for sel, want := range map[Selection]string{
		{}:                                  "[[eth_src] [ip_src]]",
		{Userspace: true}:                   "[[eth_src] [ip_src]]",
		{Userspace: true, IPv6Source: true}: "[[ip_src ipv6_src]]",
	} {
		if got := fields(s, sel); got != want {
			t.Errorf("with affinity, %+v: %s, want %s", sel, got, want)
		}
	}
}

// A host without an endpoint has no variable, and so no frontend.
func TestVariablesOfAHost(t *testing.T) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	r := resolve(objects.Web(func(s *corev1.Service) { objects.Dual(s); s.Spec.InternalTrafficPolicy = &local }),
		objects.Slice("a", 8080, "10.0.1.3@n1", "10.0.2.4@n2"), objects.Slice("six", 8080, "fd00::3@n1"))
	want := map[string]string{
		"ovn_k8s_default.web.tcp.80.near4":                                "10.0.1.3:8080",
		"ovn_k8s_default.web.tcp.80.near6":                                "[fd00::3]:8080",
		"ovn_k8s_default.web.vip.fd02_0000_0000_0000_0000_0000_0000_000a": "fd02::a",
	}
	if diff := cmp.Diff(want, Variables(&r, "n1", false)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := Variables(&r, "n3", false); len(got) != 0 {
		t.Errorf("a host without endpoints has %v", got)
	}
}

func TestCheck44UDPGoesToTheUDPBalancerOnly(t *testing.T) {
	udp, tcp := corev1.ProtocolUDP, "dns"
	s := objects.Web(func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: tcp, Protocol: udp, Port: 53})
	})
	sl := objects.Slice("a", 8080, "10.0.1.3@n1")
	five := int32(5353)
	sl.Ports = append(sl.Ports, discoveryv1.EndpointPort{Name: &tcp, Protocol: &udp, Port: &five})
	got := balancers(s, sl)
	if len(got) != 2 || !strings.Contains(got["udp"], `vips={172.16.1.10:53="10.0.1.3:5353"}`) || strings.Contains(got["tcp"], "53") || !strings.Contains(got["udp"], `ct_flush="true"`) {
		t.Errorf("got %v", got)
	}
}

func TestCheck47NamedTargetPorts(t *testing.T) {
	// service.Endpoints of pods without the port name are in no slice with the port.
	other := objects.Slice("b", 9090, "10.0.2.4@n2")
	none := "metrics"
	without := objects.Slice("c", 1, "10.0.2.5@n2")
	without.Ports[0].Name = &none
	got := balancers(objects.Web(), objects.Slice("a", 8080, "10.0.1.3@n1"), other, without)
	if !strings.Contains(got["tcp"], `172.16.1.10:80="10.0.1.3:8080,10.0.2.4:9090"`) {
		t.Errorf("got %v", got)
	}
}

func TestCheck52HeadlessServicesHaveNoRows(t *testing.T) {
	got := balancers(objects.Web(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} }), objects.Slice("a", 8080, "10.0.1.3"))
	if len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestWhatRowsFindWrong(t *testing.T) {
	for want, change := range map[string]func(*corev1.Service){
		"clusterIP 192.0.2.1 of service default/web is outside the subnets of services": func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "192.0.2.1", []string{"192.0.2.1"}
		},
		"address 10.0.9.9 of service default/web lies in the cluster subnet 10.0.0.0/16": func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{"10.0.9.9"}
		},
		"address 2001:db8::9 of service default/web is one of IPv6, of which the service has no cluster IP": func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{"2001:db8::9"}
		},
	} {
		r := resolve(objects.Web(change))
		rows := New(&r, cluster()).Rows()
		if len(rows) == 0 || len(r.Problems) != 1 || !strings.Contains(fmt.Sprint(r.Problems), want) {
			t.Errorf("got %q, want %q, and %d rows", r.Problems, want, len(rows))
		}
	}
}

// A gateway answers ARP on its LAN for the addresses of its load balancers. So only the gateway on a host has the
// host's address. Otherwise users with write access to Services could cut off every node.
func TestNoGatewayHasTheAddressOfAnotherHost(t *testing.T) {
	at := cluster()
	at.Hosts = append(at.Gateways["gw1"].Addrs, at.Hosts...)
	slices.SortFunc(at.Hosts, netip.Addr.Compare)
	const host, gateway, outside = "192.0.2.1:80", "198.18.1.1:80", "203.0.113.9:80"
	for _, policy := range []corev1.ServiceExternalTrafficPolicy{corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal} {
		for _, affinity := range []corev1.ServiceAffinity{corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP} {
			t.Run(fmt.Sprint(policy, " ", affinity), func(t *testing.T) {
				s := objects.Web(objects.NodePort)
				s.Spec.ExternalTrafficPolicy, s.Spec.SessionAffinity = policy, affinity
				s.Spec.ExternalIPs = []string{"192.0.2.1", "198.18.1.1", "203.0.113.9"}
				r := resolve(s, objects.Slice("a", 8080, "10.0.1.3@n1"))
				has := map[string][]string{} // by VIP: the routers and groups with it
				for _, row := range New(&r, at).Rows() {
					if lb, ok := row.Model.(*nbdb.LoadBalancer); ok {
						for vip := range lb.Vips {
							has[vip] = append(has[vip], row.In[0].ID)
						}
					}
				}
				for vip, want := range map[string][]string{
					host:    {"ovn-k8s-switches"},
					gateway: {"GR_gw1", "ovn-k8s-switches"},
				} {
					if slices.Sort(has[vip]); !slices.Equal(has[vip], want) {
						t.Errorf("%s is in %v, want %v", vip, has[vip], want)
					}
				}
				if len(has[outside]) == 0 {
					t.Errorf("%s is nowhere", outside)
				}
				for _, w := range New(&r, at).Summaries() {
					for _, name := range w.Balancers {
						if !slices.ContainsFunc(New(&r, at).Rows(), func(row nb.Row) bool { return row.ID == name || strings.HasSuffix(name, "/GATEWAY") }) {
							t.Errorf("%s is in %s, which there is not", w.Name, name)
						}
					}
				}
			})
		}
	}
}

// A Service refused on a node has no variables there.
func TestVariablesWhereRefused(t *testing.T) {
	s := objects.Web(objects.NodePort)
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	r := resolve(s, objects.Slice("a", 8080, "10.0.1.3@n1", "10.0.2.4@n2"))
	r.RefuseOn(map[string]int{"n1": 3000})
	if n, m := len(Variables(&r, "n1", false)), len(Variables(&r, "n2", false)); n != 0 || m != 1 {
		t.Errorf("refused on n1: %d variables there, %d on n2", n, m)
	}
}
