package managers

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// A setting is a line of a .network file. The key ends with "="; it is "" in the line that begins a section.
type setting struct{ section, key, value, line string }

// settings returns the lines of a .network file with its drop-ins.
func settings(text string) []setting {
	var all []setting
	section := ""
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		key, value, _ := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[':
			section = line
			all = append(all, setting{section: section, line: line})
		default:
			all = append(all, setting{section, strings.TrimSpace(key) + "=", strings.TrimSpace(value), line})
		}
	}
	return all
}

// Sections about the client of DHCP for IPv4, of both versions, and of router advertisements.
var (
	sections4  = []string{"[DHCP]", "[DHCPv4]"}
	sectionsIP = []string{"[DHCP]", "[DHCPv4]", "[DHCPv6]"}
	sectionRA  = "[IPv6AcceptRA]"
)

// clientSettings are the settings of the bridge's client of DHCP and router advertisements: those of the NIC's .network file, and
// the identity that the server knows. Without the latter it would see another client, and might offer another address: systemd-networkd
// makes an identity from the name of the interface. The default routes keep their metrics, or a host with several NICs would use another.
func (l layout) clientSettings() []setting {
	var all []setting
	for _, s := range settings(l.text) {
		if s.key != "" && ((l.dhcp4 || l.dhcp6) && slices.Contains(sectionsIP, s.section) || l.ra && s.section == sectionRA) {
			all = append(all, s)
		}
	}
	if l.dhcp4 {
		all = replace(all, l.identity(all))
		if m, ok := l.metrics[false]; ok {
			all = replace(all, []setting{{section: "[DHCPv4]", key: routeMetric, value: fmt.Sprint(m)}})
		}
	}
	own := slices.ContainsFunc(all, func(s setting) bool { return s.section == sectionRA && s.key == routeMetric })
	if m, ok := l.metrics[true]; ok && l.ra && !own { // the file's may be several, by preference
		all = append(all, setting{section: sectionRA, key: routeMetric, value: fmt.Sprint(m)})
	}
	return all
}

const routeMetric = "RouteMetric="

// identity returns the setting for the client identifier of the NIC's lease. Only two kinds of them follow from something else than
// the settings of the NIC's file: of one begin with 1, the type of Ethernet, and are the MAC; others with 255 and the IAID (RFC 4361).
func (l layout) identity(own []setting) []setting {
	id, err := hex.DecodeString(l.client)
	whole := slices.ContainsFunc(own, func(s setting) bool { return s.key == "ClientIdentifier=" && s.value == "duid-only" }) // without IAID
	switch {
	case err != nil || len(id) < 5 || whole:
		return nil
	case id[0] == 1:
		return []setting{{section: "[DHCPv4]", key: "ClientIdentifier=", value: "mac"}}
	case id[0] == 255:
		return []setting{{section: "[DHCPv4]", key: "IAID=", value: fmt.Sprint(binary.BigEndian.Uint32(id[1:]))}} // and of DHCPv6
	}
	return nil
}

// replace adds settings of DHCP for IPv4 in place of others with their keys.
func replace(all, by []setting) []setting {
	for _, n := range by {
		all = slices.DeleteFunc(all, func(s setting) bool { return s.key == n.key && slices.Contains(sections4, s.section) })
	}
	return append(all, by...)
}

// sectionsOf formats settings as lines of a .network file.
func sectionsOf(all []setting) []string {
	var lines []string
	section := ""
	for _, s := range all {
		if s.section != section {
			section = s.section
			lines = append(lines, section)
		}
		lines = append(lines, s.key+s.value)
	}
	return lines
}

// overrides are netplan's words for settings of DHCP.
var overrides = map[string]string{
	"UseDNS=": "use-dns", "UseNTP=": "use-ntp", "UseHostname=": "use-hostname", "UseMTU=": "use-mtu", "UseDomains=": "use-domains", "UseRoutes=": "use-routes",
	"SendHostname=": "send-hostname", "Hostname=": "hostname", routeMetric: "route-metric",
}

// netplanClient returns the settings of the bridge's client in netplan's words, and those without such a word.
func (l layout) netplanClient() (lines []string, rest []setting) {
	var words []string
	for _, s := range l.clientSettings() {
		word := overrides[s.key]
		switch {
		case !slices.Contains(sections4, s.section):
			rest = append(rest, s)
		case s.key == "ClientIdentifier=" && (s.value == "mac" || s.value == "duid"):
			lines = append(lines, "      dhcp-identifier: "+s.value)
		case word != "" && s.value != "":
			words = slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, word+": ") }) // the last one counts
			words = append(words, word+": "+s.value)
		default:
			rest = append(rest, s)
		}
	}
	for name, on := range map[string]bool{"dhcp4": l.dhcp4, "dhcp6": l.dhcp6} {
		if on && len(words) > 0 {
			lines = append(lines, fmt.Sprintf("      %s-overrides: {%s}", name, strings.Join(words, ", "))) // equal ones, or netplan refuses them
		}
	}
	slices.Sort(lines)
	return lines, rest
}
