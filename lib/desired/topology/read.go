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

// A Parser reads registries one after the other. After one without conflicts, it reads only the gateways with another
// text; its Clusters share all other values.
type Parser struct {
	last, now map[string]Gateway // by text
	keys      map[string]string  // the last registry
	cluster   Cluster            // its result
	plain     bool               // each of keys was read without a look at others
}

// gateway parses the text of a gateway. Callers must not write to its slices.
func (p *Parser) gateway(text string) (Gateway, error) {
	g, ok := p.now[text]
	if !ok {
		g, ok = p.last[text]
	}
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
	outside  map[netip.Addr]bool // of gateways, see Gateway.Outside
	joined   map[netip.Addr]bool // their join addresses
	conflict bool                // a key was not read by itself: see Parser.plain
	unfit    int                 // gateways left out: see Unfit
}

// Unfit is the error about a record with gateways that do not fit in, for example because another one has their address.
// These are left out; everything else was read.
type Unfit struct{ error }

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
	for _, ip := range g.Outside() {
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
	r.conflict = true
	with, err := r.withNode(node, subnets, 1, CheckNodeName(node))
	if err != nil {
		return err
	}
	r.Cluster = with
	r.index()
	return nil
}

// fits reports whether a node may have subnets, not counting those of other nodes.
func (c Cluster) fits(subnets []netip.Prefix) bool {
	return len(subnets) > 0 && ipnet.OnePerFamily(subnets) && ipnet.Within(subnets, c.Subnets)
}

// readChassis is WithChassis in constant time.
func (r *reader) readChassis(sw, id string) {
	if other, ok := r.byID[id]; ok && r.Chassis[other] == id {
		delete(r.Chassis, other)
		r.conflict = true
	}
	r.Chassis[sw], r.byID[id] = id, sw
}

func (r *reader) readGateway(name, text string) error {
	g, err := r.parser.gateway(text)
	if err != nil {
		return err
	}
	if !slices.Contains(modes(), g.Mode) {
		return fmt.Errorf("mode %q is none of %s, %s and %s", g.Mode, Physical, Bridge, Local)
	}
	if r.unlike(name, g) && r.checkGateway(name, g) == nil && r.joinNetwork().free(g.Join, r.joined) {
		r.Gateways[name] = g
		r.indexGateway(name, g)
		return nil
	}
	r.conflict = true
	with, err := r.add(name, g, nil)
	if err != nil {
		r.unfit++
		return err
	}
	r.Cluster = with
	r.index()
	return nil
}

// unlike reports whether g shares no name, NIC, egress subnet or address outside with another gateway.
func (r *reader) unlike(name string, g Gateway) bool {
	return !r.names[strings.ToLower(name)] && !r.nics[nic{g.Chassis, g.Interface}] && !r.rampouts.overlap(g.Rampout) &&
		!slices.ContainsFunc(g.Outside(), func(p netip.Prefix) bool { return r.outside[p.Addr()] })
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

// maxChanged is the number of changed gateways above which a registry is read as a whole: each is compared with all
// others.
const maxChanged = 8

// readChanged reads a registry that differs from the last one in a few gateways. It reports false if there are other
// changes or possible conflicts.
func (p *Parser) readChanged(keys map[string]string) (Cluster, bool) {
	if !p.plain || len(keys) != len(p.keys) {
		return Cluster{}, false
	}
	changed := map[string]Gateway{}
	for key, text := range keys {
		was, ok := p.keys[key]
		if was == text && ok {
			continue
		}
		name, isGateway := strings.CutPrefix(key, names.GatewayPrefix)
		var g Gateway
		if !ok || !isGateway || len(changed) == maxChanged || json.Unmarshal([]byte(text), &g) != nil {
			return Cluster{}, false
		}
		changed[name] = g
	}
	c := p.cluster
	if len(changed) > 0 {
		c.Gateways = maps.Clone(c.Gateways)
	}
	for name := range changed {
		delete(c.Gateways, name)
	}
	for name, g := range changed {
		if !slices.Contains(modes(), g.Mode) || c.checkGateway(name, g) != nil || !c.joinNetwork().free(g.Join, nil) || c.Gateways.conflicts(g) {
			return Cluster{}, false
		}
		c.Gateways[name] = g
	}
	return c, c.Gateways.firsts() == min(len(c.Gateways), 1)
}

// conflicts reports whether g shares a NIC, address or egress subnet with a gateway.
func (all Gateways) conflicts(g Gateway) bool {
	for _, o := range all {
		_, _, overlap := ipnet.Overlap(g.Rampout, o.Rampout)
		if overlap || o.Chassis == g.Chassis && o.Interface == g.Interface || slices.ContainsFunc(g.Join, func(a netip.Addr) bool { return slices.Contains(o.Join, a) }) ||
			slices.ContainsFunc(g.Outside(), func(p netip.Prefix) bool {
				return slices.ContainsFunc(o.Outside(), func(q netip.Prefix) bool { return p.Addr() == q.Addr() })
			}) {
			return true
		}
	}
	return false
}

// order lists the keys of nodes, and then those of gateways by their join addresses: the first free one is given, so
// that of two gateways in conflict mostly the one that came later is left out.
func (p *Parser) order(keys map[string]string) []string {
	type joined struct {
		key  string
		join netip.Addr
	}
	var gateways []joined
	sorted := make([]string, 0, len(keys))
	for key, text := range keys {
		if strings.HasPrefix(key, names.GatewayPrefix) {
			if g, err := p.gateway(text); err == nil && len(g.Join) > 0 && g.Join[0].IsValid() {
				gateways = append(gateways, joined{key, g.Join[0]})
				continue
			}
		}
		sorted = append(sorted, key)
	}
	slices.Sort(sorted)
	slices.SortFunc(gateways, func(a, b joined) int {
		if c := a.join.Compare(b.join); c != 0 {
			return c
		}
		return strings.Compare(a.key, b.key)
	})
	for _, g := range gateways {
		sorted = append(sorted, g.key)
	}
	return sorted
}

// readKeys reads all keys. Those in conflict with earlier ones are in the error.
func (p *Parser) readKeys(c Cluster, keys map[string]string) (Cluster, error) {
	r := newReader(c, p)
	var errs []error
	for _, key := range p.order(keys) {
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
	p.plain = len(errs) == 0 && !r.conflict && r.Gateways.firsts() == min(len(r.Gateways), 1)
	r.Gateways = r.Gateways.oneFirst()
	if len(errs) > 0 && len(errs) == r.unfit {
		return r.Cluster, Unfit{errors.Join(errs...)}
	}
	return r.Cluster, errors.Join(errs...)
}
