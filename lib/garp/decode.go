package garp

import (
	"net/netip"
	"slices"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// A decoder reads answers of neighbours. It decodes only their layers: gopacket's decoders of other layers trust
// lengths in packets.
type decoder struct {
	ethernet      layers.Ethernet
	arp           layers.ARP
	ip            layers.IPv6
	icmp          layers.ICMPv6
	advertisement layers.ICMPv6NeighborAdvertisement
	parser        *gopacket.DecodingLayerParser
	decoded       []gopacket.LayerType
}

func newDecoder() *decoder {
	d := new(decoder)
	d.parser = gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &d.ethernet, &d.arp, &d.ip, &d.icmp, &d.advertisement)
	d.parser.IgnoreUnsupported = true
	return d
}

// answer returns the sender's address of an ARP reply or neighbour advertisement.
func (d *decoder) answer(frame []byte) (netip.Addr, bool) {
	if err := d.parser.DecodeLayers(frame, &d.decoded); err != nil {
		return netip.Addr{}, false // a malformed frame is no answer
	}
	has := func(layer gopacket.LayerType) bool { return slices.Contains(d.decoded, layer) }
	switch {
	case has(layers.LayerTypeARP) && d.arp.Operation == layers.ARPReply:
		return netip.AddrFromSlice(d.arp.SourceProtAddress)
	case has(layers.LayerTypeICMPv6NeighborAdvertisement):
		return netip.AddrFromSlice(d.advertisement.TargetAddress)
	}
	return netip.Addr{}, false
}
