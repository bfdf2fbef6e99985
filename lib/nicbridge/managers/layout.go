package managers

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"ovn-k8s/lib/link/ifstate"
)

// A layout is the input of network configurations for a bridge. The bridge itself is in Open vSwitch's database and
// comes up with ovs-vswitchd; only its addresses, routes and settings are configured.
type layout struct {
	Bridge
	addresses    []ifstate.Record // with infinite lifetimes
	dhcp4, dhcp6 bool             // there are others from DHCP
	ra           bool             // router advertisements are accepted
	ways         []ifstate.Way
	dns          resolver
}

func (b Bridge) layout() layout {
	l := layout{Bridge: b, ra: b.Settings[ifstate.AcceptRA] == "2", dns: readResolver(resolvers)}
	for _, r := range b.Records {
		switch {
		case r.Kind == ifstate.Route && r.Is6() && r.Dynamic():
			l.ra = true
		case r.Kind != ifstate.Address || r.Automatic():
		case r.Lasts():
			l.addresses = append(l.addresses, r)
		case !r.Is6():
			l.dhcp4 = true
		case r.Prefix().IsSingleIP():
			l.dhcp6, l.ra = true, true
		default:
			l.ra = true
		}
	}
	for _, r := range b.Records {
		if w, ok := r.Way(); ok && !(l.dhcp4 && r.Default() && !r.Is6()) { // DHCP brings its default route
			l.ways = append(l.ways, w)
		}
	}
	if l.dhcp4 || l.dhcp6 {
		l.dns = resolver{} // DHCP brings DNS servers
	}
	return l
}

// A resolver is the content of a resolv.conf(5).
type resolver struct {
	servers []netip.Addr
	search  []string
}

// resolvers are files of that format. The second belongs to systemd-resolved; the first then names only its local
// address.
var resolvers = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// readResolver reads the first file naming a server on another host.
func readResolver(files []string) resolver {
	for _, file := range files {
		text, _ := os.ReadFile(file) // a missing file has no servers
		var r resolver
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			switch {
			case len(words) < 2:
			case words[0] == "nameserver":
				if a, err := netip.ParseAddr(words[1]); err == nil && !a.IsLoopback() {
					r.servers = append(r.servers, a)
				}
			case words[0] == "search":
				r.search = words[1:]
			}
		}
		if len(r.servers) > 0 {
			return r
		}
	}
	return resolver{}
}

// family returns the servers of one family.
func (r resolver) family(is6 bool) []string {
	var all []string
	for _, a := range r.servers {
		if a.Is6() == is6 {
			all = append(all, a.String())
		}
	}
	return all
}

// create is the command that creates the bridge if it is missing, as after the loss of the database.
func (l layout) create() string {
	out := "ovs-vsctl --may-exist add-br " + l.Name + " -- set Bridge " + l.Name
	if l.Datapath != "" {
		out += " datapath_type=" + l.Datapath
	}
	return out + fmt.Sprintf(` fail_mode=standalone other_config:hwaddr=\"%s\" external_ids:bridge-id=%s -- set Interface %s mtu_request=%d -- --may-exist add-port %s %s`,
		l.MAC, l.Name, l.Name, l.MTU, l.Name, l.NIC)
}

// mute lists sysctls that keep the kernel from answering on the NIC, with "/" for ".".
func (l layout) mute() []string {
	var all []string
	for _, name := range []string{ifstate.ReversePath, ifstate.IgnoreARP, ifstate.DisableIPv6} {
		all = append(all, "net/"+strings.Replace(name, "%", l.NIC, 1)+"="+l.PortSettings[name])
	}
	return all
}

// sysctls is the file for setting mute at boot.
func (l layout) sysctls() string { return "/etc/sysctl.d/90-" + l.Name + ".conf" }

// arguments formats the arguments of ip route for the bridge.
func (l layout) arguments(w ifstate.Way) string {
	out := w.To.String()
	if len(w.Via) == 1 {
		out += " via " + w.Via[0].String()
	}
	if w.Metric != 0 {
		out += fmt.Sprint(" metric ", w.Metric)
	}
	if w.Table != ifstate.Main {
		out += fmt.Sprint(" table ", w.Table)
	}
	if len(w.Via) < 2 {
		return out + " dev " + l.Name
	}
	for _, via := range w.Via {
		out += fmt.Sprintf(" nexthop via %s dev %s", via, l.Name)
	}
	return out
}
