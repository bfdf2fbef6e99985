package garp

import (
	"net"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// P3: announcements of a gateway with a VLAN are tagged.
func TestTagged(t *testing.T) {
	frame, err := Announcement(net.HardwareAddr{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("10.0.0.9"))
	if err != nil {
		t.Fatal(err)
	}
	if got := tagged(frame, 0); string(got) != string(frame) {
		t.Errorf("without a VLAN: %x", got)
	}
	p := gopacket.NewPacket(tagged(frame, 7), layers.LayerTypeEthernet, gopacket.Default)
	tag, ok := p.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q)
	arp, ok2 := p.Layer(layers.LayerTypeARP).(*layers.ARP)
	if !ok || tag.VLANIdentifier != 7 || !ok2 || net.IP(arp.DstProtAddress).String() != "10.0.0.9" {
		t.Errorf("on VLAN 7: %v", p)
	}
}
