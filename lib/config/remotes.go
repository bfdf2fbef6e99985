package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// ParseRemotes parses the addresses of a database: unix:FILE, tcp:HOST:PORT or ssl:HOST:PORT, also spelled
// tcp://HOST:PORT, IPv6 in brackets, several of a cluster separated by commas (ovsdb(7), "Active Database
// Connections"). It returns them in OVS's syntax, in the same order, without duplicates. The error names all invalid
// ones.
func ParseRemotes(s string) ([]string, error) {
	var remotes []string
	var errs []error
	seen := map[string]bool{}
	for _, word := range strings.Split(s, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		remote, err := parseRemote(word)
		if err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", word, err))
			continue
		}
		if !seen[remote] {
			remotes = append(remotes, remote)
		}
		seen[remote] = true
	}
	return remotes, errors.Join(errs...)
}

// parseRemote parses one address.
func parseRemote(s string) (string, error) {
	scheme, rest, _ := strings.Cut(s, ":")
	switch scheme {
	case "unix":
		path := strings.TrimPrefix(rest, "//")
		if !strings.HasPrefix(path, "/") {
			return "", errors.New("the file of unix: must be an absolute path")
		}
		return "unix:" + path, nil
	case "tcp", "ssl":
		hostport, err := parseHostPort(strings.TrimPrefix(rest, "//"))
		if err != nil {
			return "", fmt.Errorf("%w: want %s:HOST:PORT, as in %s:10.0.0.1:6641", err, scheme, scheme)
		}
		return scheme + ":" + hostport, nil
	}
	return "", errors.New("want unix:FILE, tcp:HOST:PORT or ssl:HOST:PORT")
}

// parseHostPort checks HOST:PORT. An IPv6 HOST must be in brackets.
func parseHostPort(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	var addrErr *net.AddrError
	if errors.As(err, &addrErr) {
		return "", errors.New(addrErr.Err)
	}
	if err != nil {
		return "", err
	}
	if host == "" || strings.ContainsAny(host, "/ \t\n@?#") {
		return "", fmt.Errorf("bad host %q", host)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("bad port %q", port)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// A Host is a host's address from a setting.
type Host struct {
	Setting string
	Addr    netip.Addr
}

// Servers returns the configured addresses and ports of the databases and the API server.
func (c Config) Servers() []netip.AddrPort {
	var out []netip.AddrPort
	add := func(hostPort string) {
		if a, err := netip.ParseAddrPort(hostPort); err == nil {
			out = append(out, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
		}
	}
	south, _ := ParseRemotes(c.OVNRemote) // ovn-controller reports invalid addresses
	for _, r := range slices.Concat(c.NB, south) {
		_, addr, _ := strings.Cut(r, ":")
		add(addr)
	}
	if u, err := url.Parse(c.APIServer); err == nil {
		port := map[bool]string{true: "443", false: "80"}[u.Scheme == "https"]
		add(net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)))
	}
	return out
}

// Hosts returns the configured addresses of hosts: of databases, of the API server, and of this host.
func (c Config) Hosts() []Host {
	var out []Host
	add := func(setting, host string) {
		if a, err := netip.ParseAddr(host); err == nil && !a.IsLoopback() {
			out = append(out, Host{setting, a.Unmap()})
		}
	}
	south, _ := ParseRemotes(c.OVNRemote) // ovn-controller reports invalid addresses
	for setting, remotes := range map[string][]string{ovnNB: c.NB, ovnRemote: south} {
		for _, r := range remotes {
			_, addr, _ := strings.Cut(r, ":")
			if host, _, err := net.SplitHostPort(addr); err == nil {
				add(setting, host)
			}
		}
	}
	for _, a := range c.TunnelIPs() {
		add(encapIP, a.String())
	}
	if u, err := url.Parse(c.APIServer); err == nil {
		add(apiServer, u.Hostname())
	}
	slices.SortFunc(out, func(a, b Host) int { return strings.Compare(a.Setting, b.Setting) })
	return out
}
