package host

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"

	"ovn-k8s/test/probe"
)

// A DHCP server (RFC 2131) on the hosts' network of a fabric, with static addresses for ports.
type DHCP struct {
	conn     net.PacketConn
	dns      netip.Addr
	lifetime time.Duration
	mu       sync.Mutex
	ports    map[string]*Port // by MAC
	done     chan struct{}
}

// ServeDHCP starts a DHCP server. The caller must Close it before the fabric.
func (f *Fabric) ServeDHCP(dns netip.Addr, lifetime time.Duration) (*DHCP, error) {
	d := &DHCP{dns: dns, lifetime: lifetime, ports: map[string]*Port{}, done: make(chan struct{})}
	err := probe.In(f.Netns(), func() error {
		config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			control := c.Control(func(fd uintptr) {
				if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err == nil {
					err = unix.BindToDevice(int(fd), underlay.bridge)
				}
			})
			if control != nil {
				return control
			}
			return err
		}}
		var err error
		d.conn, err = config.ListenPacket(context.Background(), "udp4", ":67")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("starting a DHCP server: %w", err)
	}
	go d.run()
	return d, nil
}

// Add makes the server assign the port's IPv4 address to its MAC.
func (d *DHCP) Add(p *Port) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ports[p.MAC.String()] = p
}

// Close stops the server.
func (d *DHCP) Close() {
	_ = d.conn.Close()
	<-d.done
}

func (d *DHCP) run() {
	defer close(d.done)
	for buffer := make([]byte, 1500); ; {
		n, _, err := d.conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		var request layers.DHCPv4
		if request.DecodeFromBytes(buffer[:n], gopacket.NilDecodeFeedback) != nil || request.Operation != layers.DHCPOpRequest {
			continue
		}
		d.mu.Lock()
		port := d.ports[request.ClientHWAddr.String()]
		d.mu.Unlock()
		if port != nil {
			d.answer(request, port)
		}
	}
}

// answer offers or acknowledges the port's address, ignoring the requested one.
func (d *DHCP) answer(request layers.DHCPv4, port *Port) {
	reply := layers.DHCPMsgTypeUnspecified
	for _, o := range request.Options {
		if o.Type == layers.DHCPOptMessageType && len(o.Data) == 1 {
			switch layers.DHCPMsgType(o.Data[0]) {
			case layers.DHCPMsgTypeDiscover:
				reply = layers.DHCPMsgTypeOffer
			case layers.DHCPMsgTypeRequest:
				reply = layers.DHCPMsgTypeAck
			}
		}
	}
	if reply == layers.DHCPMsgTypeUnspecified {
		return
	}
	address, server := port.Addresses[0], underlay.ipv4.Addr().AsSlice()
	message := &layers.DHCPv4{
		Operation: layers.DHCPOpReply, HardwareType: layers.LinkTypeEthernet, HardwareLen: 6, Xid: request.Xid, Flags: request.Flags,
		ClientIP: request.ClientIP, YourClientIP: address.Addr().AsSlice(), NextServerIP: server, ClientHWAddr: request.ClientHWAddr,
		Options: layers.DHCPOptions{
			layers.NewDHCPOption(layers.DHCPOptMessageType, []byte{byte(reply)}),
			layers.NewDHCPOption(layers.DHCPOptServerID, server),
			layers.NewDHCPOption(layers.DHCPOptLeaseTime, binary.BigEndian.AppendUint32(nil, uint32(d.lifetime/time.Second))),
			layers.NewDHCPOption(layers.DHCPOptSubnetMask, net.CIDRMask(address.Bits(), 32)),
			layers.NewDHCPOption(layers.DHCPOptRouter, port.Gateways[0].AsSlice()),
			layers.NewDHCPOption(layers.DHCPOptDNS, d.dns.AsSlice()),
		},
	}
	buffer := gopacket.NewSerializeBuffer()
	if message.SerializeTo(buffer, gopacket.SerializeOptions{FixLengths: true}) != nil {
		return
	}
	// A renewing client already has the address; a new one has none, so the reply is broadcast.
	to := net.IPv4bcast
	if !request.ClientIP.IsUnspecified() {
		to = request.ClientIP
	}
	_, _ = d.conn.WriteTo(buffer.Bytes(), &net.UDPAddr{IP: to, Port: 68}) // clients ask again
}
