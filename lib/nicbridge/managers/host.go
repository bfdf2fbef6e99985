package managers

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/platform"
)

// A host is what files of the host say about a NIC.
type host struct {
	dns resolver
	// file is the .network file of systemd-networkd, "" without one. text is its content, and that of its drop-ins.
	file, text string
	// connection is the UUID of NetworkManager's connection, "" without one.
	connection string
	// shared: another device uses that connection, too.
	shared bool
	// client is the client identifier of a DHCP lease of systemd-networkd in hexadecimal digits, "" without one.
	client string
	// nmClient is that of a lease of NetworkManager, with colons.
	nmClient string
}

func hostOf(i ifstate.Interface) host {
	h := host{dns: readResolver(resolvers), file: recorded(platform.Networkd.Links, i, "NETWORK_FILE="), connection: recorded(platform.NetworkManager.Links, i, connectionKey)}
	h.shared = h.connection != "" && shares(h.connection, i)
	h.nmClient = recorded(platform.NetworkManager.Links, i, "dhcp4.dhcp_client_identifier=")
	if h.file == "" {
		return h
	}
	h.client = recorded(networkdLeases, i, "CLIENTID=")
	files := []string{h.file}
	for _, dir := range []string{"/usr/lib/systemd/network", "/run/systemd/network", platform.Networkd.Config} {
		more, _ := filepath.Glob(filepath.Join(dir, filepath.Base(h.file)+".d", "*.conf")) // fails for a bad pattern only
		files = append(files, more...)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // a missing file has no lines
		h.text += string(text) + "\n"
	}
	return h
}

// shares reports whether NetworkManager uses a connection for another device than i.
func shares(connection string, i ifstate.Interface) bool {
	others, err := net.Interfaces()
	return err == nil && slices.ContainsFunc(others, func(o net.Interface) bool {
		return o.Index != i.Index && recorded(platform.NetworkManager.Links, ifstate.Interface{Name: o.Name, Index: o.Index}, connectionKey) == connection
	})
}

// connectionKey begins the line with the UUID of a connection.
const connectionKey = "connection-uuid="

// networkdLeases has the leases of systemd-networkd, by DHCP for IPv4.
const networkdLeases = "/run/systemd/netif/leases"

// recorded is the value of a line in a daemon's state file of an interface.
func recorded(dir string, i ifstate.Interface, key string) string {
	text, _ := os.ReadFile(filepath.Join(dir, fmt.Sprint(i.Index))) // a missing file has no lines
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
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
