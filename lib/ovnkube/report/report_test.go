package report

import (
	"slices"
	"testing"
)

// A line for each thing to do, with its commands; configurations keep their lines.
func TestThings(t *testing.T) {
	const advice = `# A DHCP client works on eth0, and would give it the address again. Run:
kill 12
dhclient breth0
# Address 192.0.2.7/24 is of a DHCP lease: it ends in 60 s unless a DHCP client on breth0 renews it.
# systemd-networkd configures eth0. For it to restore breth0 at boot, have there instead:
# /etc/systemd/network/05-breth0.network
[Match]
Name=breth0
# Its DHCP client works on eth0, and would give it the address again. Then run:
networkctl reload
# ifupdown configures eth0. If you wrote the bridge into its files: put them back.
`
	want := []string{
		"A DHCP client works on eth0, and would give it the address again. Run: kill 12; dhclient breth0",
		"Address 192.0.2.7/24 is of a DHCP lease: it ends in 60 s unless a DHCP client on breth0 renews it.",
		"systemd-networkd configures eth0. For it to restore breth0 at boot, have there instead:",
		"    # /etc/systemd/network/05-breth0.network",
		"    [Match]",
		"    Name=breth0",
		"Its DHCP client works on eth0, and would give it the address again. Then run: networkctl reload",
		"ifupdown configures eth0. If you wrote the bridge into its files: put them back.",
	}
	if got := things(advice); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
