// Package foreign finds tables of nftables of other programs that drop packets of pods: an accept in one base chain does not
// prevent a later base chain at the same hook from dropping the packet (nft(8), verdict statements). It changes none.
package foreign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"ovn-k8s/lib/nftables"
	"ovn-k8s/lib/platform"
)

// ErrMissing means that the program nft is not installed.
var ErrMissing = errors.New("nft is not installed, so tables dropping packets of pods are not found")

// A Ruleset is the part of the nftables ruleset relevant for Drops.
type Ruleset struct {
	chains []chain
	tables map[string][]any // by family and name: all objects of tables with filter chains
}

// A chain as printed by nft: see libnftables-json(5).
type chain struct {
	Family, Table, Name, Type, Hook, Policy string
}

func (c chain) table() string { return c.Family + " " + c.Table }

// filters reports whether a chain may drop packets to this host or forwarded by it. firewalld has the table
// firewalld_policy_drop only during a reload.
func (c chain) filters() bool {
	return c.Type == "filter" && slices.Contains([]string{"prerouting", "forward", "input"}, c.Hook) && slices.Contains([]string{"inet", "ip", "ip6"}, c.Family) &&
		c.Table != nftables.TableName && c.Table != "firewalld_policy_drop"
}

// ofIPTables reports whether a chain is one of iptables.
func (c chain) ofIPTables() bool {
	return c.Table == "filter" && c.Family != "inet" && (c.Name == "FORWARD" || c.Name == "INPUT")
}

// Read reads the ruleset of this network namespace.
func Read(ctx context.Context) (Ruleset, error) {
	r := Ruleset{tables: map[string][]any{}}
	objects, err := list(ctx, "chains")
	if err != nil {
		return r, err
	}
	for _, o := range objects {
		var c struct{ Chain *chain }
		if json.Unmarshal(o, &c) == nil && c.Chain != nil {
			r.chains = append(r.chains, *c.Chain)
		}
	}
	for _, c := range r.chains {
		if !c.filters() || r.tables[c.table()] != nil {
			continue
		}
		objects, err := list(ctx, "table", c.Family, c.Table)
		if err != nil {
			return r, err
		}
		for _, o := range objects {
			var v any
			if json.Unmarshal(o, &v) == nil {
				r.tables[c.table()] = append(r.tables[c.table()], v)
			}
		}
	}
	return r, nil
}

// timeout bounds a run of nft.
const timeout = 20 * time.Second

// list runs "nft list" and returns the objects in its output.
func list(ctx context.Context, what ...string) ([]json.RawMessage, error) {
	program, err := exec.LookPath("nft")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrMissing, platform.Host(os.ReadFile).Remedy(platform.NFTables))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("killed, because it was not done within %v", timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"-j", "list"}, what...)...)
	cmd.WaitDelay = time.Second // for children of a script: they keep its output open
	out, err := cmd.Output()
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("nft list %s: %w", strings.Join(what, " "), context.Cause(ctx))
	case err != nil:
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.Join(strings.Fields(string(exit.Stderr)), " "))
		}
		return nil, fmt.Errorf("nft list %s: %w", strings.Join(what, " "), err)
	}
	var all struct{ Nftables []json.RawMessage }
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("reading the output of nft list %s: %w", strings.Join(what, " "), err)
	}
	return all.Nftables, nil
}

// HasKubeProxy reports whether kube-proxy in mode nftables has a table here.
func (r Ruleset) HasKubeProxy() bool {
	return slices.ContainsFunc(r.chains, func(c chain) bool { return c.Table == "kube-proxy" && c.Family != "inet" })
}

// Needs are the packets of pods to be accepted by a firewall.
type Needs struct {
	Interfaces []string // forwarded from and to these
	Ports      []int    // UDP ports of tunnels
	// IPTables are the families with rules of ours in iptables to accept such packets: they come first there.
	IPTables []netip.Addr
	// Answers is the interface by which pods answer clients with a route to them, "" without one: the host's own route to pods
	// uses another. Families are those of pods.
	Answers  string
	Families []string // "ip", "ip6"
}

// Families returns those of subnets, for Needs.
func Families(subnets []netip.Prefix) (all []string) {
	for _, s := range subnets {
		family := map[bool]string{false: "ip", true: "ip6"}[s.Addr().Is6()]
		if !slices.Contains(all, family) {
			all = append(all, family)
		}
	}
	return all
}

// A Drop is a base chain that drops packets of pods: by default, without a rule for them, or for the interface they come by.
type Drop struct {
	Table, Chain, Hook string // Table includes the family
	missing            []string
	ports              []int
	answers            string // the interface; then the chain drops packets whose route back uses another one
	families           []string
}

// Drops returns the chains dropping packets of needs. Rules are not evaluated: a table that names an interface or a
// port counts as accepting it.
func (r Ruleset) Drops(needs Needs) []Drop {
	var all []Drop
	for _, c := range r.chains {
		if families := r.reverse(c, needs); len(families) > 0 {
			all = append(all, Drop{Table: c.table(), Chain: c.Name, Hook: c.Hook, answers: needs.Answers, families: families})
		}
		if c.Hook == "prerouting" {
			continue
		}
		// iptables never had a rule of ours for tunnels.
		accepted := c.Hook == "input" || slices.ContainsFunc(needs.IPTables, func(family netip.Addr) bool { return family.Is6() == (c.Family == "ip6") })
		if !c.filters() || !r.drops(c) || c.ofIPTables() && accepted {
			continue
		}
		d := Drop{Table: c.table(), Chain: c.Name, Hook: c.Hook}
		named := r.tables[c.table()]
		if c.Hook == "forward" {
			d.missing = slices.DeleteFunc(slices.Clone(needs.Interfaces), func(name string) bool { return namesInterface(named, name) })
		} else {
			d.ports = slices.DeleteFunc(slices.Clone(needs.Ports), func(port int) bool { return namesPort(named, float64(port)) })
		}
		if len(d.missing)+len(d.ports) > 0 {
			all = append(all, d)
		}
	}
	return all
}

// String describes the problem and its remedy in one line.
func (d Drop) String() string {
	text := fmt.Sprintf("nftables: chain %s of table %s drops at hook %s all packets that its rules do not accept, and no rule names ", d.Chain, d.Table, d.Hook)
	rule := "nft insert rule " + d.Table + " " + d.Chain
	if d.answers != "" {
		return d.ofAnswers(rule)
	}
	if d.Table == "inet firewalld" {
		return text + d.ofFirewalld()
	}
	if d.Hook == "input" {
		ports := set(d.ports, "%d")
		return fmt.Sprintf("%sUDP port %s: tunnels between nodes may fail: accept it in the firewall's configuration, or by '%s udp dport %s accept'", text, ports, rule, ports)
	}
	names := set(d.missing, "%q")
	return fmt.Sprintf("%sinterface %s: egress and NodePorts may fail: accept it in the firewall's configuration, or by '%s iifname %s accept' and '%s oifname %s accept'",
		text, names, rule, names, rule, names)
}

// ofFirewalld is the rest of the text for firewalld, whose table may belong to its process alone.
func (d Drop) ofFirewalld() string {
	const reload = " and 'firewall-cmd --reload'"
	if d.Hook == "input" {
		options := ""
		for _, p := range d.ports {
			options += fmt.Sprintf(" --add-port=%d/udp", p)
		}
		return fmt.Sprintf("UDP port %s: tunnels between nodes may fail: accept it by 'firewall-cmd --permanent%s'%s", set(d.ports, "%d"), options, reload)
	}
	options := ""
	for _, name := range d.missing {
		options += " --add-interface=" + name
	}
	return fmt.Sprintf("interface %s: egress and NodePorts may fail: trust it by 'firewall-cmd --permanent --zone=trusted%s'%s", set(d.missing, "%q"), options, reload)
}

// ofAnswers is the text about a reverse path filter. The zone trusted of firewalld does not help there.
func (d Drop) ofAnswers(rule string) string {
	text := fmt.Sprintf("nftables: chain %s of table %s drops at hook %s packets of %s whose route back uses another interface, as answers of pods by %s to clients with a route to pods: ",
		d.Chain, d.Table, d.Hook, strings.NewReplacer("ip6", "IPv6", "ip", "IPv4").Replace(strings.Join(d.families, " and ")), d.answers)
	if d.Table == "inet firewalld" {
		return text + "set IPv6_rpfilter=loose in /etc/firewalld/firewalld.conf, or no before firewalld 2.2, and run 'firewall-cmd --reload'"
	}
	return fmt.Sprintf("%saccept them in the firewall's configuration, or by '%s iifname %q accept'", text, rule, d.answers)
}

// set formats elements as a set of nft, or a single element alone.
func set[T any](elements []T, format string) string {
	var words []string
	for _, e := range elements {
		words = append(words, fmt.Sprintf(format, e))
	}
	if len(words) == 1 {
		return words[0]
	}
	return "{ " + strings.Join(words, ", ") + " }"
}

// drops reports whether a base chain drops by default: by its policy, or by a last rule without a match.
func (r Ruleset) drops(c chain) bool {
	if c.Policy == "drop" {
		return true
	}
	var last []any
	for _, o := range r.tables[c.table()] {
		rule, _ := o.(map[string]any)["rule"].(map[string]any)
		if rule["chain"] == c.Name {
			last, _ = rule["expr"].([]any)
		}
	}
	final := false
	for _, statement := range last {
		s, _ := statement.(map[string]any)
		for kind := range s {
			switch kind {
			case "drop", "reject":
				final = true
			case "counter", "log":
			default:
				return false
			}
		}
	}
	return final
}

// reverse returns the families of needs with packets that a chain drops because their route back uses another interface than
// they came by: RFC 3704, section 2.2. A rule before, with the interface's name, counts as accepting them.
func (r Ruleset) reverse(c chain, needs Needs) (families []string) {
	if needs.Answers == "" || !c.filters() || c.Hook == "input" {
		return nil
	}
	for _, o := range r.tables[c.table()] {
		rule, _ := o.(map[string]any)["rule"].(map[string]any)
		if rule["chain"] != c.Name {
			continue
		}
		if namesInterface(rule, needs.Answers) {
			break
		}
		statements, _ := rule["expr"].([]any)
		for _, f := range needs.Families {
			if (c.Family == f || c.Family == "inet") && dropsReverse(statements, f) && !slices.Contains(families, f) {
				families = append(families, f)
			}
		}
	}
	return families
}

// dropsReverse reports whether statements drop all packets of a family without a route back by the interface that they came by.
func dropsReverse(statements []any, family string) bool {
	checks, drops := false, false
	for _, s := range statements {
		statement, _ := s.(map[string]any)
		for kind, value := range statement {
			switch kind {
			case "counter", "log":
			case "drop", "reject":
				drops = checks
			case "match":
				switch m, _ := value.(map[string]any); {
				case missesRoute(m):
					checks = true
				case !isOfFamily(m, family):
					return false
				}
			default:
				return false
			}
		}
	}
	return drops
}

// missesRoute reports whether a match holds without a route back by the same interface: see fib in nft(8).
func missesRoute(match map[string]any) bool {
	left, _ := match["left"].(map[string]any)
	fib, _ := left["fib"].(map[string]any)
	flags, _ := fib["flags"].([]any)
	missing := slices.Contains([]any{false, "0", 0.0}, match["right"])
	return match["op"] == "==" && missing && fib["result"] != "type" && slices.Contains(flags, any("saddr")) && slices.Contains(flags, any("iif"))
}

// isOfFamily reports whether a match holds for all packets of a family.
func isOfFamily(match map[string]any, family string) bool {
	left, _ := match["left"].(map[string]any)
	meta, _ := left["meta"].(map[string]any)
	protocol := map[string]string{"ip": "ipv4", "ip6": "ipv6"}[family]
	return match["op"] == "==" && meta["key"] == "nfproto" && match["right"] == protocol
}

// namesInterface reports whether JSON contains an interface's name, or a pattern matching it.
func namesInterface(v any, name string) bool {
	return contains(v, func(v any) bool {
		s, ok := v.(string)
		prefix, pattern := strings.CutSuffix(s, "*")
		return ok && (s == name || pattern && prefix != "" && strings.HasPrefix(name, prefix))
	})
}

// namesPort reports whether JSON contains a port, or a range with it.
func namesPort(v any, port float64) bool {
	return contains(v, func(v any) bool {
		if n, ok := v.(float64); ok {
			return n == port
		}
		m, _ := v.(map[string]any)
		bounds, _ := m["range"].([]any)
		if len(bounds) != 2 {
			return false
		}
		low, ok := bounds[0].(float64)
		high, ok2 := bounds[1].(float64)
		return ok && ok2 && low <= port && port <= high
	})
}

// contains reports whether found holds for v or a value inside it. Handles are skipped.
func contains(v any, found func(any) bool) bool {
	if found(v) {
		return true
	}
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return contains(e, found) })
	case map[string]any:
		for key, e := range v {
			if key != "handle" && contains(e, found) {
				return true
			}
		}
	}
	return false
}
