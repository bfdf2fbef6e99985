// Package nodeclaim is the claim of a node: its host's chassis and gateway. The host publishes them as annotations of its
// Node, because only masters connect to the Northbound database.
package nodeclaim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// A Claim is the claim of a node. The zero value is that of a node whose host has not published any.
type Claim struct {
	Chassis string // the system-id of the host's Open vSwitch
	// Gateway is nil if the host is no gateway. It is complete but for Join, First and Node. Annotations ignores these and
	// Chassis; Parse sets Chassis to the claim's.
	Gateway *topology.Gateway
}

// Equal reports whether both claim the same.
func (c Claim) Equal(d Claim) bool {
	if c.Chassis != d.Chassis || (c.Gateway == nil) != (d.Gateway == nil) {
		return false
	}
	return c.Gateway == nil || c.Gateway.Equal(*d.Gateway)
}

// modes are the modes of a gateway in the annotation, by those of the topology.
func modes() map[string]string {
	return map[string]string{topology.Bridge: "shared", topology.Physical: "spare", topology.Local: "local"}
}

// A config is the JSON of a gateway, with the members of the Go era. The last four are ours.
type config struct {
	Mode      string   `json:"mode"` // "": none
	Interface string   `json:"interface-id,omitempty"`
	MAC       string   `json:"mac-address,omitempty"`
	IPs       []string `json:"ip-addresses,omitempty"`
	IP        string   `json:"ip-address,omitempty"` // the first of IPs
	NextHops  []string `json:"next-hops,omitempty"`
	NextHop   string   `json:"next-hop,omitempty"` // the first of NextHops
	NodePorts string   `json:"node-port-enable,omitempty"`
	VLAN      string   `json:"vlan-id,omitempty"`
	SNATPorts string   `json:"snat-ports,omitempty"`
	Egress    []string `json:"egress-subnets,omitempty"`
	Tunnel    string   `json:"tunnel-address,omitempty"`
	MTU       string   `json:"mtu,omitempty"`
}

// network is the member of the cluster's network.
const network = "default"

// Annotations returns the annotations names.ChassisAnnotation and names.GatewayAnnotation of a node. Parse is the inverse.
func (c Claim) Annotations(node string) map[string]string {
	var g config
	if c.Gateway != nil {
		g = configOf(*c.Gateway, node)
	}
	text, err := json.Marshal(map[string]config{network: g})
	if err != nil {
		panic("nodeclaim: a gateway is not JSON: " + err.Error()) // strings are
	}
	return map[string]string{names.ChassisAnnotation: c.Chassis, names.GatewayAnnotation: string(text)}
}

// configOf is the JSON of a gateway.
func configOf(g topology.Gateway, node string) config {
	out := config{
		Mode: modes()[g.Mode], Interface: names.ExternalPort(g.Interface, node), MAC: g.MAC, NodePorts: strconv.FormatBool(!g.Closed),
		IPs: texts(g.IPs), NextHops: texts(g.NextHops), VLAN: strconv.Itoa(g.VLAN), SNATPorts: g.Ports, Egress: texts(g.Rampout),
	}
	if len(out.IPs) > 0 {
		out.IP = out.IPs[0]
	}
	if len(out.NextHops) > 0 {
		out.NextHop = out.NextHops[0]
	}
	if g.Tunnel.IsValid() {
		out.Tunnel = g.Tunnel.String()
	}
	if g.MTU != 0 {
		out.MTU = strconv.Itoa(g.MTU)
	}
	return out
}

func texts[T fmt.Stringer](list []T) (out []string) {
	for _, v := range list {
		out = append(out, v.String())
	}
	return out
}

// Limits of the annotations' lengths, in bytes.
const (
	maxChassis = 253
	maxGateway = 4096
)

// Parse reads the claim in the annotations of a node. The error is one line, names an annotation and says what is right
// in it. The claim then has the parts that could be read. Whether a gateway fits into the cluster is for
// topology.Cluster.WithGateway to decide.
func Parse(node string, annotations map[string]string) (Claim, error) {
	c := Claim{Chassis: annotations[names.ChassisAnnotation]}
	if err := checkChassis(c.Chassis); err != nil {
		return Claim{}, fmt.Errorf("annotation %s %.60q is not the system-id of a host: %w", names.ChassisAnnotation, c.Chassis, err)
	}
	text := annotations[names.GatewayAnnotation]
	if text == "" {
		return c, nil
	}
	g, err := parseGateway(node, text)
	if err == nil && g != nil && c.Chassis == "" {
		err = fmt.Errorf("a gateway needs the annotation %s", names.ChassisAnnotation)
	}
	if err != nil {
		return c, fmt.Errorf("annotation %s: %w", names.GatewayAnnotation, err)
	}
	if g != nil {
		g.Chassis = c.Chassis
	}
	c.Gateway = g
	return c, nil
}

func checkChassis(id string) error {
	switch {
	case len(id) > maxChassis:
		return fmt.Errorf("it has %d bytes, and at most %d are allowed", len(id), maxChassis)
	case strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' }):
		return errors.New("give visible ASCII characters without blanks or quotation marks")
	}
	return nil
}

// parseGateway reads the JSON of a gateway; nil: there is none.
func parseGateway(node, text string) (*topology.Gateway, error) {
	if len(text) > maxGateway {
		return nil, fmt.Errorf("it has %d bytes, and at most %d are allowed", len(text), maxGateway)
	}
	var all map[string]*config
	if err := json.Unmarshal([]byte(text), &all); err != nil || all[network] == nil {
		return nil, fmt.Errorf("%.100q is not JSON as {%q: {\"mode\": \"shared\", …}}", text, network)
	}
	in := all[network]
	if in.Mode == "" {
		return nil, nil
	}
	g := &topology.Gateway{}
	for ours, theirs := range modes() {
		if in.Mode == theirs {
			g.Mode = ours
		}
	}
	if g.Mode == "" {
		return nil, fmt.Errorf("mode %.20q is none of shared, spare and local", in.Mode)
	}
	return g, in.read(node, g)
}

// read reads everything but the mode.
func (in *config) read(node string, g *topology.Gateway) (err error) {
	if g.Interface, err = parseInterface(in.Interface, node); err != nil {
		return err
	}
	if g.MAC = in.MAC; !ipnet.UnicastMAC(g.MAC) {
		return fmt.Errorf("mac-address %.30q is not the MAC of a host: write it like 0a:58:c0:a8:02:03", in.MAC)
	}
	if g.IPs, err = each("ip-addresses", or(in.IPs, in.IP), parseIP); err != nil {
		return err
	}
	if g.NextHops, err = each("next-hops", or(in.NextHops, in.NextHop), parseHop); err != nil {
		return err
	}
	if g.Rampout, err = each("egress-subnets", in.Egress, parseSubnet); err != nil {
		return err
	}
	slices.SortStableFunc(g.IPs, func(a, b netip.Prefix) int { return a.Addr().BitLen() - b.Addr().BitLen() })
	slices.SortStableFunc(g.NextHops, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	if g.VLAN, err = number("vlan-id", in.VLAN, 4094); err != nil {
		return err
	}
	if g.MTU, err = number("mtu", in.MTU, 65535); err != nil {
		return err
	}
	if g.Closed = true; in.NodePorts != "" {
		open, err := strconv.ParseBool(in.NodePorts)
		if err != nil {
			return fmt.Errorf("node-port-enable %.20q is neither \"true\" nor \"false\"", in.NodePorts)
		}
		g.Closed = !open
	}
	if in.Tunnel != "" {
		if g.Tunnel, err = parseHop(in.Tunnel); err != nil {
			return fmt.Errorf("tunnel-address %w", err)
		}
	}
	g.Ports, err = parsePorts(in.SNATPorts)
	return err
}

// or returns the list of today, or else the one value of the early Go era.
func or(list []string, one string) []string {
	if len(list) == 0 && one != "" {
		return []string{one}
	}
	return list
}

// parseInterface returns the NIC or bridge of a logical port: see names.ExternalPort.
func parseInterface(port, node string) (string, error) {
	name, ok := strings.CutSuffix(port, names.ExternalPort("", node))
	if !ok || name == "" || len(name) > 15 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == '"' }) {
		return "", fmt.Errorf("interface-id %.60q is not the name of an interface and the node's, as in \"breth0_%s\"", port, node)
	}
	if names.BetweenRouters(port) { // the database refuses two ports with one name
		return "", fmt.Errorf("interface-id %.60q begins as the name of a port of a router: give an interface with another name", port)
	}
	return name, nil
}

// each parses a member with a list of at most one value of each family; of subnets, any number.
func each[T any](member string, list []string, parse func(string) (T, error)) (out []T, err error) {
	for _, text := range list {
		v, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", member, err)
		}
		out = append(out, v)
	}
	return out, nil
}

func parseIP(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	a := p.Addr()
	linkLocal := a.Is4() && a.IsLinkLocalUnicast() // those of a local gateway
	if err != nil || a.Is4In6() || p.Bits() == 0 || !linkLocal && ipnet.Unusable(a) != "" {
		return p, fmt.Errorf("%.60q is not the address of a host with its prefix length: write it like 192.0.2.11/24", text)
	}
	return p, nil
}

// parseHop parses the address of a neighbour, which may be link-local.
func parseHop(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if why := ipnet.Unusable(a); err != nil || a.Is4In6() || why != "" && !(a.IsLinkLocalUnicast() && a.Zone() == "") {
		return a, fmt.Errorf("%.60q is not the address of a host: write it like 192.0.2.1", text)
	}
	return a, nil
}

func parseSubnet(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() || p != p.Masked() {
		return p, fmt.Errorf("%.60q is not a subnet: write it like 10.128.2.0/23", text)
	}
	return p, nil
}

// number parses a number from 0, which "" stands for, to most.
func number(member, text string, most int) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("%s %.20q is not a number from 0 to %d", member, text, most)
	}
	return n, nil
}

// parsePorts checks a range of ports, "LOW-HIGH".
func parsePorts(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	from, to, _ := strings.Cut(text, "-")
	low, err1 := strconv.ParseUint(from, 10, 16)
	high, err2 := strconv.ParseUint(to, 10, 16)
	if errors.Join(err1, err2) != nil || low == 0 || low > high {
		return "", fmt.Errorf("snat-ports %.20q is not a range of ports: write it like 32768-60999", text)
	}
	return fmt.Sprintf("%d-%d", low, high), nil
}
