package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Bytes added to a pod's packet by a tunnel: the inner Ethernet header and the tunnel's own headers, without the
// outer IP header.
const (
	genevePlus = 14 + 8 + 8 + 8 // UDP, Geneve (RFC 8926), OVN's option (ovn-architecture(7), Tunnel Encapsulations)
	vxlanPlus  = 14 + 8 + 8     // UDP, VXLAN (RFC 7348)
	sttPlus    = 14 + 20 + 18   // the TCP-like header, STT (draft-davie-stt)
)

// A Tunnel is one of this host's tunnel addresses, with its MTUs.
type Tunnel struct {
	Local netip.Addr // of ovn-encap-ip
	NIC   string     // the interface with Local, "" if there is none
	MTU   int        // of NIC in bytes
	Needs int        // the MTU in bytes needed for packets of pods, with all headers
}

// TunnelIPs returns the addresses of ovn-encap-ip, a list with commas. Invalid ones are left out: ovn-controller reports
// them.
func (c Config) TunnelIPs() (all []netip.Addr) {
	for word := range strings.SplitSeq(c.EncapIP, ",") {
		if a, err := netip.ParseAddr(strings.TrimSpace(word)); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// Tunnels returns one Tunnel for each address of ovn-encap-ip. nic returns the interface with an address, and its
// MTU.
func (c Config) Tunnels(nic func(netip.Addr) (name string, mtu int)) []Tunnel {
	var all []Tunnel
	for _, local := range c.TunnelIPs() {
		t := Tunnel{Local: local, Needs: c.MTU + c.tunnelPlus() + 20}
		if local.Is6() {
			t.Needs += 20
		}
		t.NIC, t.MTU = nic(local)
		all = append(all, t)
	}
	return all
}

// tunnelPlus is the overhead in bytes of the largest tunnel type in ovn-encap-type.
func (c Config) tunnelPlus() int {
	plus := map[string]int{"geneve": genevePlus, "vxlan": vxlanPlus, "stt": sttPlus}
	most := 0
	for word := range strings.SplitSeq(c.EncapType, ",") {
		most = max(most, plus[strings.TrimSpace(word)])
	}
	if most == 0 {
		return genevePlus
	}
	return most
}

// CheckTunnelTypes returns an error unless ovn-controller knows all tunnel types in a value of ovn-encap-type: see ovn-controller(8).
func CheckTunnelTypes(value string) error {
	for word := range strings.SplitSeq(value, ",") {
		switch word {
		case "geneve", "vxlan":
		case "stt":
			return errors.New("tunnels of type stt were removed from Open vSwitch 3.6 and OVN 25.09, and need a kernel module of releases before 3.0; want geneve")
		default:
			return fmt.Errorf("%q is no type of tunnels; want geneve or vxlan, both with a comma and no space", word)
		}
	}
	return nil
}

// Check returns an error if the tunnel cannot carry packets of pods with this MTU, in bytes.
func (t Tunnel) Check(mtu int) error {
	switch {
	case t.NIC == "":
		return fmt.Errorf("ovn-encap-ip %v is not an address of this host, so tunnels do not work: set external_ids:ovn-encap-ip of Open_vSwitch to one of its addresses", t.Local)
	case t.Needs > t.MTU:
		return fmt.Errorf("mtu %d of pods is too large for tunnels: with their headers packets have %d bytes, but %s with ovn-encap-ip %v takes %d: set ovn-k8s-mtu to %d or less on all hosts, or raise the MTU of the network between them",
			mtu, t.Needs, t.NIC, t.Local, t.MTU, mtu-(t.Needs-t.MTU))
	}
	return nil
}

// Narrowest returns the tunnel with the least spare room. tunnels must not be empty.
func Narrowest(tunnels []Tunnel) Tunnel {
	return slices.MinFunc(tunnels, func(a, b Tunnel) int { return (a.MTU - a.Needs) - (b.MTU - b.Needs) })
}

// Report formats the MTUs of pods, needed, and of the NIC, in bytes: "PODS/NEEDS/HAS". ReadReport is its inverse.
func (t Tunnel) Report(mtu int) string { return fmt.Sprintf("%d/%d/%d", mtu, t.Needs, t.MTU) }

// ReadReport parses the result of Report, and returns false for another text.
func ReadReport(text string) (mtu, needs, has int, ok bool) {
	n, err := fmt.Sscanf(text, "%d/%d/%d", &mtu, &needs, &has)
	return mtu, needs, has, err == nil && n == 3
}
