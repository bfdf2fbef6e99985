package boot

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
)

// Our stanzas in interfaces(5) stand between two comments, each followed by the
// interface's name.
const (
	beginMark = "# begin ovn-k8s: written by ovn-k8s-overlay, do not edit:"
	endMark   = "# end ovn-k8s:"
)

// withStanzas returns the text of interfaces(5) with stanzas for m. They replace earlier ones, also of the Python
// era. A stanza of br-int with another owner stays; complaint names the option missing there.
func withStanzas(text string, m Management) (edited string, complaint []string) {
	name := m.Port.Name
	text = withoutStanzas(text, name)
	bridge, mine := bridgeStanza(text)
	block := []string{beginMark + " " + name}
	if !mine {
		block = append(block, "allow-ovs "+names.IntegrationBridge,
			"iface "+names.IntegrationBridge+" inet manual",
			"    ovs_type OVSBridge",
			"    ovs_ports "+name,
			"    ovs_extra set bridge "+names.IntegrationBridge+" fail_mode=secure", "")
	} else if !slices.Contains(option(bridge, "ovs_ports"), name) {
		complaint = []string{fmt.Sprintf("%s has a stanza of its own for %s: add %s to its ovs_ports", interfacesFile, names.IntegrationBridge, name)}
	}
	block = append(block, "allow-"+names.IntegrationBridge+" "+name)
	for i, p := range m.State.Addresses {
		block = append(block, addressStanza(m, p, i == 0)...)
	}
	block = append(block, endMark+" "+name)
	if text != "" {
		text = strings.TrimSuffix(text, "\n") + "\n\n"
	}
	return text + strings.Join(block, "\n") + "\n", complaint
}

// addressStanza is the part for one address. The first part also makes the port. Routes have the protocol of
// package link, so link replaces them later.
func addressStanza(m Management, p netip.Prefix, first bool) []string {
	name := m.Port.Name
	lines := []string{"iface " + name + " inet static"}
	family := "-4"
	mask := net.IP(net.CIDRMask(p.Bits(), 32)).String()
	if p.Addr().Is6() {
		lines[0] = "iface " + name + " inet6 static"
		family, mask = "-6", fmt.Sprint(p.Bits())
	}
	lines = append(lines, "    address "+p.Addr().String(), "    netmask "+mask)
	if p.Addr().Is6() {
		lines = append(lines, "    accept_ra 0", "    dad-attempts 0")
	}
	if p.Addr().Is4() {
		lines = append(lines, "    up sysctl -q -w net/ipv4/conf/"+name+"/arp_announce=2")
	}
	if first {
		lines = append(lines, "    ovs_type OVSIntPort", "    ovs_bridge "+names.IntegrationBridge, "    ovs_extra "+ovsExtra(m))
	}
	for _, r := range m.State.Routes {
		if ipnet.SameFamily(r.Via, p.Addr()) {
			lines = append(lines,
				fmt.Sprintf("    up ip %s route replace %s dev %s proto %d", family, r, name, link.Protocol),
				fmt.Sprintf("    down ip %s route del %s dev %s proto %d || true", family, r, name, link.Protocol))
		}
	}
	return lines
}

// withoutStanzas returns the text without our stanzas about an interface and those of the Python era.
func withoutStanzas(text, name string) string {
	var kept []string
	for _, st := range stanzas(withoutBlock(text, name)) {
		words := strings.Fields(st[0])
		switch {
		case len(words) > 1 && words[0] == "iface" && words[1] == name:
			st = st[:0]
		case len(words) > 1 && words[0] == "iface" && words[1] == names.IntegrationBridge && slices.Equal(option(st, "ovs_ports"), []string{name}) && onlyPython(st):
			st = st[:0]
		case len(words) > 1 && words[0] == "allow-"+names.IntegrationBridge:
			st = withoutWord(st, name)
		}
		kept = append(kept, st...)
	}
	return withoutIdle(strings.Join(kept, ""))
}

// withoutIdle drops br-int from the allow-ovs lines if it has no stanza left.
func withoutIdle(text string) string {
	if _, there := bridgeStanza(text); there {
		return text
	}
	var kept []string
	for _, st := range stanzas(text) {
		if words := strings.Fields(st[0]); len(words) > 0 && words[0] == "allow-ovs" {
			st = withoutWord(st, names.IntegrationBridge)
		}
		kept = append(kept, st...)
	}
	return strings.Join(kept, "")
}

// onlyPython reports whether a stanza of br-int has no more options than the stanza of the Python era.
func onlyPython(st []string) bool {
	for _, l := range st[1:] {
		words := strings.Fields(l)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") || words[0] == "ovs_type" || words[0] == "ovs_ports" {
			continue
		}
		if words[0] != "ovs_extra" || !strings.HasSuffix(strings.TrimSpace(l), "fail_mode=secure") || slices.Contains(words, "--") {
			return false
		}
	}
	return true
}

// withoutBlock cuts out the text between our comments, and the empty line before. A comment without its partner is
// cut out alone.
func withoutBlock(text, name string) string {
	all := slices.Collect(strings.Lines(text))
	mark := func(m string) func(string) bool {
		return func(l string) bool { return strings.TrimSpace(l) == m+" "+name }
	}
	for {
		begin := slices.IndexFunc(all, mark(beginMark))
		if begin < 0 {
			return strings.Join(slices.DeleteFunc(all, mark(endMark)), "")
		}
		end := begin
		if n := slices.IndexFunc(all[begin:], mark(endMark)); n >= 0 {
			end += n
		}
		if begin > 0 && all[begin-1] == "\n" {
			begin--
		}
		all = slices.Delete(all, begin, end+1)
	}
}

// stanzas splits the text before the first line of each stanza (interfaces(5)). Comments and empty lines belong to
// the stanza before.
func stanzas(text string) [][]string {
	var all [][]string
	for l := range strings.Lines(text) {
		if len(all) == 0 || begins(l) {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], l)
	}
	return all
}

func begins(line string) bool {
	words := strings.Fields(line)
	if len(words) == 0 {
		return false
	}
	keywords := []string{"iface", "auto", "mapping", "source", "source-directory", "rename", "template", "no-auto-down", "no-scripts"}
	return slices.Contains(keywords, words[0]) || strings.HasPrefix(words[0], "allow-")
}

// withoutWord takes an interface off a line such as "allow-ovs br-int br-ex", and the line away if no other
// interface is on it.
func withoutWord(st []string, name string) []string {
	words := strings.Fields(st[0])
	left := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == name })
	switch {
	case len(left) == len(words):
		return st
	case len(left) == 1:
		return st[1:]
	}
	return append([]string{strings.Join(left, " ") + "\n"}, st[1:]...)
}

// bridgeStanza returns the stanza of br-int.
func bridgeStanza(text string) ([]string, bool) {
	for _, st := range stanzas(text) {
		if words := strings.Fields(st[0]); len(words) > 1 && words[0] == "iface" && words[1] == names.IntegrationBridge {
			return st, true
		}
	}
	return nil, false
}

// option returns the words of an option of a stanza.
func option(st []string, name string) []string {
	for _, l := range st[1:] {
		if words := strings.Fields(l); len(words) > 0 && words[0] == name {
			return words[1:]
		}
	}
	return nil
}
