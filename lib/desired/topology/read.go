package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// A Parser reads registries one after the other, and parses only gateways whose text was not in the one before.
type Parser struct{ last, now map[string]Gateway } // by text

// gateway parses the text of a gateway. Callers must not write to its slices.
func (p *Parser) gateway(text string) (Gateway, error) {
	g, ok := p.last[text]
	if !ok {
		if err := json.Unmarshal([]byte(text), &g); err != nil {
			return g, fmt.Errorf("%.100q is not a gateway: %w", text, err)
		}
	}
	p.now[text] = g
	return g, nil
}

// A reader reads a registry key by key. Its indexes detect values shared by two keys, so that reading takes
// time linear in the number of keys. A possible conflict is left to WithNode and add to decide.
type reader struct {
	Cluster
	parser   *Parser
	byID     map[string]string // nodes, by system-id
	subnets  disjoint          // of nodes
	rampouts disjoint
	names    map[string]bool // of gateways, in lower case
	nics     map[nic]bool
	outside  map[netip.Addr]bool // IPs of gateways
	joined   map[netip.Addr]bool // their join addresses
}

type nic struct{ chassis, name string }

func newReader(c Cluster, p *Parser) *reader {
	p.last, p.now = p.now, make(map[string]Gateway, len(p.now))
	r := &reader{Cluster: c, parser: p, byID: map[string]string{}}
	r.Nodes, r.Chassis = map[string][]netip.Prefix{}, map[string]string{}
	r.index()
	return r
}

// index makes the indexes of nodes and gateways again.
func (r *reader) index() {
	r.Nodes, r.Gateways = maps.Clone(r.Nodes), maps.Clone(r.Gateways)
	if r.Gateways == nil {
		r.Gateways = map[string]Gateway{}
	}
	r.subnets, r.rampouts = nil, nil
	r.names, r.nics, r.outside, r.joined = map[string]bool{}, map[nic]bool{}, map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, subnets := range r.Nodes {
		r.subnets = r.subnets.with(subnets)
	}
	for name, g := range r.Gateways {
		r.indexGateway(name, g)
	}
}

func (r *reader) indexGateway(name string, g Gateway) {
	r.names[strings.ToLower(name)] = true
	r.nics[nic{g.Chassis, g.Interface}] = true
	r.rampouts = r.rampouts.with(g.Rampout)
	for _, ip := range g.IPs {
		r.outside[ip.Addr()] = true
	}
	for _, a := range g.Join {
		r.joined[a] = true
	}
}

// read adds the node, chassis or gateway of one key.
func (r *reader) read(key, value string) error {
	if node, ok := strings.CutPrefix(key, names.NodePrefix); ok {
		return r.readNode(node, value)
	}
	if node, ok := strings.CutPrefix(key, names.ChassisPrefix); ok {
		r.readChassis(names.NodeSwitch(node), value)
		return nil
	}
	if name, ok := strings.CutPrefix(key, names.GatewayPrefix); ok {
		return r.readGateway(name, value)
	}
	return nil
}

func (r *reader) readNode(node, value string) error {
	subnets, err := ipnet.ParseSubnets(value, MinHosts)
	if err != nil {
		return err
	}
	sw := names.NodeSwitch(node)
	if r.Nodes[sw] == nil && CheckNodeName(node) == nil && r.fits(subnets) && !r.subnets.overlap(subnets) {
		r.Nodes[sw], r.subnets = subnets, r.subnets.with(subnets)
		return nil
	}
	with, err := r.withNode(node, subnets, 1)
	if err != nil {
		return err
	}
	r.Cluster = with
	r.index()
	return nil
}

// fits reports whether a node may have subnets, not counting those of other nodes.
func (c Cluster) fits(subnets []netip.Prefix) bool {
	return len(subnets) > 0 && len(subnets) <= len(c.Subnets) && ipnet.Within(subnets, c.Subnets)
}

// readChassis is WithChassis in constant time.
func (r *reader) readChassis(sw, id string) {
	if other, ok := r.byID[id]; ok && r.Chassis[other] == id {
		delete(r.Chassis, other)
	}
	r.Chassis[sw], r.byID[id] = id, sw
}

func (r *reader) readGateway(name, text string) error {
	g, err := r.parser.gateway(text)
	if err != nil {
		return err
	}
	if !slices.Contains([]string{Physical, Bridge, Local}, g.Mode) {
		return fmt.Errorf("mode %q is none of %s, %s and %s", g.Mode, Physical, Bridge, Local)
	}
	if r.unlike(name, g) && r.checkGateway(name, g) == nil && r.joinNetwork().free(g.Join, r.joined) {
		r.Gateways[name] = g
		r.indexGateway(name, g)
		return nil
	}
	with, err := r.add(name, g, nil)
	if err != nil {
		return err
	}
	r.Cluster = with
	r.index()
	return nil
}

// unlike reports whether g shares no name, NIC, egress subnet or IP with another gateway.
func (r *reader) unlike(name string, g Gateway) bool {
	return !r.names[strings.ToLower(name)] && !r.nics[nic{g.Chassis, g.Interface}] && !r.rampouts.overlap(g.Rampout) &&
		!slices.ContainsFunc(g.IPs, func(p netip.Prefix) bool { return r.outside[p.Addr()] })
}

// disjoint are sorted prefixes without overlaps.
type disjoint []netip.Prefix

// with returns d with more prefixes. None of them may overlap another or one of d.
func (d disjoint) with(more []netip.Prefix) disjoint {
	for _, p := range more {
		i, _ := d.find(p)
		d = slices.Insert(d, i, p)
	}
	return d
}

// overlap reports whether one of list overlaps one of d.
func (d disjoint) overlap(list []netip.Prefix) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool {
		i, found := d.find(p)
		return found || i < len(d) && d[i].Overlaps(p) || i > 0 && d[i-1].Overlaps(p)
	})
}

func (d disjoint) find(p netip.Prefix) (int, bool) {
	return slices.BinarySearchFunc(d, p, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
}

// readKeys reads all keys, in their order. Keys in conflict with others are in the error.
func (c Cluster) readKeys(keys map[string]string, p *Parser) (Cluster, error) {
	r := newReader(c, p)
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if err := r.read(key, keys[key]); err != nil {
			errs = append(errs, fmt.Errorf("reading %s of the topology: %w", key, err))
		}
	}
	if len(r.Chassis) == 0 {
		r.Chassis = nil
	}
	if len(r.Gateways) == 0 {
		r.Gateways = nil
	}
	r.Gateways = r.Gateways.oneFirst()
	return r.Cluster, errors.Join(errs...)
}
