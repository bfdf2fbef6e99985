package nodeclaim

import (
	"net/netip"
	"strings"
	"testing"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
)

func full() Claim {
	return Claim{Chassis: "c1", Gateway: &topology.Gateway{
		Mode: topology.Bridge, Interface: "br_eth0", Chassis: "c1", MAC: "0a:58:c0:a8:02:03",
		IPs:      []netip.Prefix{netip.MustParsePrefix("192.0.2.11/24"), netip.MustParsePrefix("2001:db8::11/64")},
		NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fe80::1")},
		VLAN:     100, Ports: "32768-60999", Rampout: []netip.Prefix{netip.MustParsePrefix("10.128.2.0/23")},
		Tunnel: netip.MustParseAddr("192.0.2.11"), MTU: 1400,
	}}
}

func TestParseInvertsAnnotations(t *testing.T) {
	spare, local, none := full(), full(), full()
	spare.Gateway.Mode, local.Gateway.Mode, local.Gateway.Closed, none.Gateway = topology.Physical, topology.Local, true, nil
	for _, c := range []Claim{full(), spare, local, none, {}} {
		got, err := Parse("n1", c.Annotations("n1"))
		if err != nil || !got.Equal(c) {
			t.Errorf("%+v became %+v, %v", c, got, err)
		}
	}
	if got, err := Parse("n1", nil); err != nil || !got.Equal(Claim{}) {
		t.Errorf("without annotations: %+v, %v", got, err)
	}
}

// §3.2: the JSON of the Go era, and that of its beginning with single values.
func TestFormats(t *testing.T) {
	c := full()
	c.Gateway.Ports, c.Gateway.Rampout, c.Gateway.MTU, c.Gateway.Tunnel = "", nil, 0, netip.Addr{}
	const want = `{"default":{"mode":"shared","interface-id":"br_eth0_n1","mac-address":"0a:58:c0:a8:02:03","ip-addresses":["192.0.2.11/24","2001:db8::11/64"],` +
		`"ip-address":"192.0.2.11/24","next-hops":["192.0.2.1","fe80::1"],"next-hop":"192.0.2.1","node-port-enable":"true","vlan-id":"100"}}`
	if got := c.Annotations("n1"); got["k8s.ovn.org/l3-gateway-config"] != want || got["k8s.ovn.org/node-chassis-id"] != "c1" {
		t.Errorf("got  %v\nwant %s", got, want)
	}
	early := `{"default":{"mode":"local","interface-id":"br-local_n1","mac-address":"0a:58:a9:fe:21:02","ip-address":"169.254.33.2/24","next-hop":"169.254.33.1","other":{}}}`
	got, err := parseGateway("n1", early)
	if err != nil || got.Interface != "br-local" || got.IPs[0].String() != "169.254.33.2/24" || got.NextHops[0].String() != "169.254.33.1" || !got.Closed {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Bad input gives one line, which names the annotation, the value and the right form.
func TestBadClaims(t *testing.T) {
	gateway := func(change string) string {
		text := full().Annotations("n1")[names.GatewayAnnotation]
		from, to, _ := strings.Cut(change, " -> ")
		if !strings.Contains(text, from) {
			t.Fatalf("%q is not in %s", from, text)
		}
		return strings.ReplaceAll(text, from, to)
	}
	for text, want := range map[string]string{
		"foo":                                                  "is not JSON",
		"[]":                                                   "is not JSON",
		"null":                                                 "is not JSON",
		`{"default":null}`:                                     "is not JSON",
		`{"other":{"mode":"shared"}}`:                          "is not JSON",
		`{"default":{"mode":1}}`:                               "is not JSON",
		`{"default":{"mode":"disabled"}}`:                      "mode \"disabled\" is none of shared, spare and local",
		strings.Repeat("[", 5000):                              "it has 5000 bytes, and at most 4096 are allowed",
		gateway("_n1 -> _n2"):                                  "interface-id \"br_eth0_n2\" is not",
		gateway("br_eth0_n1 -> _n1"):                           "interface-id \"_n1\" is not",
		gateway("br_eth0_n1 -> a/b_n1"):                        "interface-id",
		gateway("br_eth0_n1 -> etor-GR_n1"):                    "interface-id \"etor-GR_n1\" begins as the name of a port of a router",
		gateway("br_eth0_n1 -> jtor-GR_n1"):                    "interface-id \"jtor-GR_n1\" begins",
		gateway("br_eth0_n1 -> rtoe-GR_n1"):                    "interface-id \"rtoe-GR_n1\" begins",
		gateway("0a:58: -> 01:58:"):                            "mac-address \"01:58:c0:a8:02:03\" is not",
		gateway("2.11/24 -> 2.11"):                             "ip-addresses: \"192.0.2.11\" is not",
		gateway("192.0.2.11/24 -> 0.0.0.0/0"):                  "ip-addresses",
		gateway("fe80::1 -> fe80::1%eth0"):                     "next-hops",
		gateway("\"100\" -> \"4095\""):                         "vlan-id \"4095\" is not a number from 0 to 4094",
		gateway("\"true\" -> \"yes\""):                         "node-port-enable \"yes\" is neither",
		gateway("\"1400\" -> \"-1\""):                          "mtu \"-1\" is not",
		gateway("32768-60999 -> 60999-3"):                      "snat-ports \"60999-3\" is not",
		gateway("10.128.2.0/23 -> 10.1.1.1/8"):                 "egress-subnets",
		gateway("address\":\"192.0.2.11\" -> address\":\"x\""): "tunnel-address \"x\" is not",
	} {
		c, err := Parse("n1", map[string]string{names.ChassisAnnotation: "c1", names.GatewayAnnotation: text})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "annotation "+names.GatewayAnnotation+": ") ||
			strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
			t.Errorf("%.80s: %v, want %q", text, err, want)
		}
		if c.Chassis != "c1" || c.Gateway != nil {
			t.Errorf("%.80s: claim %+v", text, c)
		}
	}
	for _, id := range []string{"a b", "a\nb", "é", `"`, strings.Repeat("x", 254)} {
		if c, err := Parse("n1", map[string]string{names.ChassisAnnotation: id}); err == nil || c.Chassis != "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("chassis %q: %+v, %v", id, c, err)
		}
	}
	if _, err := Parse("n1", map[string]string{names.GatewayAnnotation: gateway("100 -> 0")}); err == nil || !strings.Contains(err.Error(), "needs the annotation "+names.ChassisAnnotation) {
		t.Errorf("without a chassis: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("n1", "c1", full().Annotations("n1")[names.GatewayAnnotation])
	f.Fuzz(func(t *testing.T, node, chassis, gateway string) {
		c, err := Parse(node, map[string]string{names.ChassisAnnotation: chassis, names.GatewayAnnotation: gateway})
		if err != nil {
			return
		}
		again, err := Parse(node, c.Annotations(node))
		if err != nil || !again.Equal(c) {
			t.Fatalf("%+v became %+v, %v", c, again, err)
		}
	})
}

// Only names of ports of gateways' routers can be claimed by INTERFACE_NODE: other interfaces may begin in the same way.
func TestInterfacesNamedLikePortsOfNodes(t *testing.T) {
	for _, name := range []string{"stor-25g", "rtos-0", "etor-1", "rtoj-GRE"} {
		c := full()
		c.Gateway.Interface = name
		if got, err := Parse("n1", c.Annotations("n1")); err != nil || got.Gateway.Interface != name {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
