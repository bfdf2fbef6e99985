package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"ovn-k8s/test/probe"
)

// eventBuffer is the size of the kernel's buffer for new connections not read yet.
const eventBuffer = 4 << 20

// A hop has the ports of a connection at a node.
type hop struct{ from, to uint16 }

// translated has the connections translated by a node's kernel, with their tuples afterwards in the notation of
// Open vSwitch. At a NodePort of a node without a gateway, OVN sees the management port as the client. The kernel tells
// of each new connection: the entry of a refused one is gone at once.
type translated struct {
	socket *nl.NetlinkSocket
	wg     sync.WaitGroup
	mu     sync.Mutex
	tuples map[hop]string
}

// follow begins to record the connections translated in a network namespace.
func follow(netns string) (*translated, error) {
	t := &translated{tuples: map[hop]string{}}
	err := probe.In(netns, func() (err error) {
		if t.socket, err = nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_CONNTRACK_NEW); err != nil {
			return err
		}
		return t.socket.SetReceiveBufferSize(eventBuffer, true)
	})
	if err != nil {
		return nil, fmt.Errorf("following the kernel's connection tracking: %w", err)
	}
	t.wg.Go(t.run)
	return t, nil
}

// run records connections until close is called. Connections are missed if the buffer is full.
func (t *translated) run() {
	for {
		messages, _, err := t.socket.Receive()
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
		for _, m := range messages {
			if h, tuple := translation(m.Data); tuple != "" {
				t.mu.Lock()
				t.tuples[h] = tuple
				t.mu.Unlock()
			}
		}
	}
}

func (t *translated) close() {
	t.socket.Close()
	t.wg.Wait()
}

// tuple returns the tuple of the last connection with these ports, or "" if it was not translated.
func (t *translated) tuple(h hop) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tuples[h]
}

// translation returns the ports of a new connection and its tuple after the translation, or "" if its source port stays.
func translation(message []byte) (hop, string) {
	if len(message) < nl.SizeofNfgenmsg {
		return hop{}, ""
	}
	all, err := nl.ParseRouteAttrAsMap(message[nl.SizeofNfgenmsg:])
	if err != nil {
		return hop{}, ""
	}
	// Flags of a nested attribute are part of its type.
	before, after := end(all[nl.CTA_TUPLE_ORIG|nl.NLA_F_NESTED].Value), end(all[nl.CTA_TUPLE_REPLY|nl.NLA_F_NESTED].Value)
	if before.protocol != unix.IPPROTO_TCP || before.from.Port() == after.to.Port() {
		return hop{}, ""
	}
	return hop{before.from.Port(), before.to.Port()}, fmt.Sprintf("orig=(src=%v,dst=%v,sport=%d,", after.to.Addr(), after.from.Addr(), after.to.Port())
}

// A direction of a connection.
type direction struct {
	protocol uint8
	from, to netip.AddrPort
}

// end parses the tuple of a direction. Missing parts are zero.
func end(tuple []byte) (d direction) {
	nested := func(b []byte, of uint16) map[uint16][]byte {
		out := map[uint16][]byte{}
		outer, _ := nl.ParseRouteAttrAsMap(b)
		inner, _ := nl.ParseRouteAttr(outer[of|nl.NLA_F_NESTED].Value)
		for _, a := range inner {
			out[a.Attr.Type] = a.Value
		}
		return out
	}
	ip, proto := nested(tuple, nl.CTA_TUPLE_IP), nested(tuple, nl.CTA_TUPLE_PROTO)
	address := func(v4, v6 uint16) netip.Addr {
		a, _ := netip.AddrFromSlice(append(ip[v4], ip[v6]...))
		return a
	}
	port := func(of uint16) uint16 {
		if len(proto[of]) < 2 {
			return 0
		}
		return binary.BigEndian.Uint16(proto[of])
	}
	if p := proto[nl.CTA_PROTO_NUM]; len(p) > 0 {
		d.protocol = p[0]
	}
	d.from = netip.AddrPortFrom(address(nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC), port(nl.CTA_PROTO_SRC_PORT))
	d.to = netip.AddrPortFrom(address(nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST), port(nl.CTA_PROTO_DST_PORT))
	return d
}
