package managers

import (
	"strings"
	"testing"
)

// leased returns the layout of a bridge with an address from DHCP, with a .network file and a client identifier of the NIC.
func leased(text, client string) func(layout) layout {
	return func(l layout) layout {
		l.addresses, l.ways, l.dhcp4 = nil, nil, true
		l.file, l.text, l.client = "/etc/systemd/network/20-eth0.network", text, client
		return l
	}
}

// The DHCP server sees the client of the NIC on the bridge: its identifier is that of the lease, or follows from the NIC's settings.
func TestClientIdentity(t *testing.T) {
	const (
		duid    = "ff1c9c1b4200020000ab11f940faf4409ebba0"
		mac     = "010a0000000001"
		own     = "[Match]\nName=eth0\n[Network]\nDHCP=ipv4\n"
		bridge  = "DHCP=ipv4\nIPv6AcceptRA=false\n"
		sysctls = "# /etc/sysctl.d/90-breth0.conf\n"
	)
	for name, c := range map[string]struct{ text, client, networkd, netplan, dropIn string }{
		"no lease":       {own, "", "", "", ""},
		"DUID":           {own, duid, "[DHCPv4]\nIAID=479992642\n", "", "[DHCPv4]\nIAID=479992642\n"},
		"MAC":            {own, mac, "[DHCPv4]\nClientIdentifier=mac\n", "      dhcp-identifier: mac\n", ""},
		"no lease, MAC":  {own + "[DHCP]\nClientIdentifier = mac\n", "", "[DHCP]\nClientIdentifier=mac\n", "      dhcp-identifier: mac\n", ""},
		"another kind":   {own, "0061626364", "", "", ""},
		"no hexadecimal": {own, "nonsense", "", "", ""},
		"cut":            {own, "ff1c", "", "", ""},
		"a former IAID, and a DUID": {
			own + "[DHCPv4]\nIAID=7\n# a comment\nDUIDType=link-layer\n", duid,
			"[DHCPv4]\nDUIDType=link-layer\nIAID=479992642\n", "", "[DHCPv4]\nDUIDType=link-layer\nIAID=479992642\n",
		},
		"a DUID without IAID": {own + "[DHCPv4]\nClientIdentifier=duid-only\n", "ff00020000ab11f940faf4409ebba0", "[DHCPv4]\nClientIdentifier=duid-only\n", "", "[DHCPv4]\nClientIdentifier=duid-only\n"},
		"other settings": {
			own + "[DHCP]\nUseMTU=true\nHostname=minion\n[IPv6AcceptRA]\nUseDNS=no\n[DHCPv6]\nRapidCommit=no\n[DHCPv4]\nUseDNS=no\nUseMTU=false\nSendOption=60:string:x\n", mac,
			"[DHCP]\nUseMTU=true\nHostname=minion\n[DHCPv6]\nRapidCommit=no\n[DHCPv4]\nUseDNS=no\nUseMTU=false\nSendOption=60:string:x\nClientIdentifier=mac\n",
			"      dhcp-identifier: mac\n      dhcp4-overrides: {hostname: minion, use-dns: no, use-mtu: false}\n", "[DHCPv6]\nRapidCommit=no\n[DHCPv4]\nSendOption=60:string:x\n",
		},
	} {
		l := leased(c.text, c.client)(on("eth0", "device", 1500))
		if out := strings.Join(networkdText(l), "\n") + "\n"; !strings.Contains(out, bridge+c.networkd+sysctls) {
			t.Errorf("%s: no %q in:\n%s", name, c.networkd, out)
		}
		if c.dropIn != "" {
			c.dropIn = "# /etc/systemd/network/10-netplan-breth0.network.d/client.conf, since netplan has no words for these:\n" + c.dropIn
		}
		l.file = netplanFiles + "eth0.network"
		if out := strings.Join(netplanText(l), "\n") + "\n"; !strings.Contains(out, "      accept-ra: false\n"+c.netplan+c.dropIn+sysctls) {
			t.Errorf("%s: no %q and %q in:\n%s", name, c.netplan, c.dropIn, out)
		}
	}
}

// The settings for router advertisements are for a bridge that accepts some, those for DHCP for one with an address from there.
func TestSettingsOfOtherProtocols(t *testing.T) {
	for want, protocols := range map[string]layout{
		"IPv6AcceptRA=true\n[IPv6AcceptRA]\nUseDNS=no\n#":                                      {ra: true},
		"IPv6AcceptRA=true\n[DHCP]\nUseMTU=no\n[IPv6AcceptRA]\nUseDNS=no\n#":                   {ra: true, dhcp6: true},
		"DHCP=yes\nIPv6AcceptRA=false\n[DHCP]\nUseMTU=no\n[DHCPv4]\nClientIdentifier=mac\n# /": {dhcp4: true, dhcp6: true},
	} {
		l := leased("[DHCP]\nUseMTU=no\n[IPv6AcceptRA]\nUseDNS=no\n", "010a0000000001")(on("eth0", "device", 1500))
		l.dhcp4, l.dhcp6, l.ra = protocols.dhcp4, protocols.dhcp6, protocols.ra
		if out := strings.Join(networkdText(l), "\n") + "\n"; !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
		if out := strings.Join(netplanText(l), "\n"); strings.Contains(out, "dhcp6-overrides: {use-mtu: no}") != l.dhcp6 || strings.Contains(out, "dhcp4-overrides: {use-mtu: no}") != l.dhcp4 {
			t.Errorf("equal overrides for each protocol of DHCP are missing in:\n%s", out)
		}
	}
}
