package managers

import (
	"slices"
	"testing"
)

// A client is known by its arguments, dhcpcd by the title that it has in their place.
func TestClientOf(t *testing.T) {
	for name, c := range map[string]struct{ args, want []string }{
		"dhclient":               {[]string{"/sbin/dhclient", "-4", "-pf", "/run/dhclient.eth0.pid", "eth0"}, []string{"kill 7", "/sbin/dhclient -4 -pf /run/dhclient.breth0.pid breth0"}},
		"of NetworkManager":      {[]string{"dhclient", "-sf", "/usr/lib/NetworkManager/nm-dhcp-helper", "eth0"}, nil},
		"of another NIC":         {[]string{"udhcpc", "-i", "eth1"}, nil},
		"dhcpcd":                 {[]string{"dhcpcd: eth0 [ip4] [ip6]", "", "."}, []string{"dhcpcd -x eth0", "dhcpcd breth0"}},
		"dhcpcd for IPv4":        {[]string{"dhcpcd: eth0 [ip4]"}, []string{"dhcpcd -4 -x eth0", "dhcpcd -4 breth0"}},
		"dhcpcd for IPv6":        {[]string{"dhcpcd: eth0 [ip6]"}, []string{"dhcpcd -6 -x eth0", "dhcpcd -6 breth0"}},
		"dhcpcd without a title": {[]string{"/usr/sbin/dhcpcd", "-q", "eth0"}, []string{"kill 7", "/usr/sbin/dhcpcd -q breth0"}},
		"dhcpcd of another NIC":  {[]string{"dhcpcd: eth01 [ip4] [ip6]"}, nil},
		"a helper of dhcpcd":     {[]string{"dhcpcd: [privileged proxy] eth0 [ip4] [ip6]"}, nil},
		"no arguments":           {[]string{""}, nil},
	} {
		if got, _ := clientOf("7", c.args, "eth0", "breth0"); !slices.Equal(got.Commands, c.want) {
			t.Errorf("%s: got %q, want %q", name, got.Commands, c.want)
		}
	}
}
