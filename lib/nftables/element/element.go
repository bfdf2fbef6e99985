// Package element translates elements of sets and maps to the form of the kernel, and back.
package element

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	netfilter "github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"

	"ovn-k8s/lib/ruleset"
)

// Protocols are the numbers of protocols by the names in elements (IANA, Protocol Numbers).
var Protocols = map[string]byte{"tcp": 6, "udp": 17, "sctp": 132}

// register is the size of the kernel's registers: each field of a key or value begins with one.
const register = 4

// Encode returns an element as the kernel has it.
func Encode(set ruleset.Set, e ruleset.Element) (out netfilter.SetElement, err error) {
	for _, f := range set.Key {
		from, to := []byte(nil), []byte(nil)
		switch f {
		case ruleset.Source:
			from, to = e.Source.Masked().Addr().AsSlice(), last(e.Source)
		case ruleset.Destination:
			from = e.Destination.AsSlice()
		case ruleset.Protocol:
			number, known := Protocols[e.Protocol]
			if !known {
				return out, fmt.Errorf("unknown protocol %q", e.Protocol)
			}
			from = []byte{number}
		case ruleset.Port:
			from = binary.BigEndian.AppendUint16(nil, e.Port)
		}
		if to == nil {
			to = from
		}
		out.Key, out.KeyEnd = padded(out.Key, from), padded(out.KeyEnd, to)
	}
	if !set.HasRanges() {
		out.KeyEnd = nil
	}
	out.Comment = e.Comment
	switch set.Value {
	case ruleset.AddrPort:
		out.Val = padded(padded(nil, e.To.Addr().AsSlice()), binary.BigEndian.AppendUint16(nil, e.To.Port()))
	case ruleset.Verdict:
		chain, goes := strings.CutPrefix(e.Verdict, "goto ")
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictDrop}
		switch {
		case goes:
			out.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}
		case e.Verdict != "drop":
			return out, fmt.Errorf("unknown verdict %q", e.Verdict)
		}
	}
	return out, nil
}

// padded appends a field.
func padded(to, field []byte) []byte {
	to = append(to, field...)
	for len(to)%register != 0 {
		to = append(to, 0)
	}
	return to
}

// last is the last address of a prefix.
func last(p netip.Prefix) []byte {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return b
}

// Decode is the inverse of Encode. The error is about elements of other programs.
func Decode(set ruleset.Set, family netip.Addr, raw netfilter.SetElement) (e ruleset.Element, err error) {
	key := fields{left: raw.Key, size: family.BitLen() / 8}
	end := fields{left: raw.KeyEnd, size: key.size}
	if raw.KeyEnd == nil {
		end.left = raw.Key
	}
	for _, f := range set.Key {
		switch f {
		case ruleset.Source:
			e.Source = between(key.addr(), end.addr())
			key.is(e.Source.IsValid())
		case ruleset.Destination:
			e.Destination = key.addr()
			end.is(e.Destination == end.addr())
		case ruleset.Protocol:
			e.Protocol = key.protocol()
			end.is(e.Protocol == end.protocol())
		case ruleset.Port:
			e.Port = key.port()
			end.is(e.Port == end.port())
		}
	}
	if key.bad || len(key.left) > 0 || end.bad || len(end.left) > 0 {
		return e, fmt.Errorf("unexpected key %x to %x", raw.Key, raw.KeyEnd)
	}
	e.Comment = raw.Comment
	switch set.Value {
	case ruleset.AddrPort:
		value := fields{left: raw.Val, size: key.size}
		e.To = netip.AddrPortFrom(value.addr(), value.port())
		if value.bad || len(value.left) > 0 {
			return e, fmt.Errorf("unexpected value %x", raw.Val)
		}
	case ruleset.Verdict:
		e.Verdict, err = verdict(raw.Val)
	}
	return e, err
}

// Attributes of a verdict: NFTA_VERDICT_CODE and NFTA_VERDICT_CHAIN of linux/netfilter/nf_tables.h.
const (
	verdictCode  = 1
	verdictChain = 2
)

// Attributes decodes attributes of netlink.
func Attributes(data []byte) (*netlink.AttributeDecoder, error) {
	d, err := netlink.NewAttributeDecoder(data)
	if err == nil {
		d.ByteOrder = binary.BigEndian
	}
	return d, err
}

// verdict formats a verdict: attributes with its code and, for a goto, the chain.
func verdict(value []byte) (string, error) {
	attributes, err := Attributes(value)
	if err != nil {
		return "", fmt.Errorf("unexpected verdict %x: %w", value, err)
	}
	code, chain := expr.VerdictStop, ""
	for attributes.Next() {
		switch attributes.Type() {
		case verdictCode:
			code = expr.VerdictKind(int32(attributes.Uint32())) // signed in 32 bits
		case verdictChain:
			chain = attributes.String()
		}
	}
	switch {
	case attributes.Err() == nil && code == expr.VerdictGoto && chain != "":
		return "goto " + chain, nil
	case attributes.Err() == nil && code == expr.VerdictDrop:
		return "drop", nil
	}
	return "", fmt.Errorf("unexpected verdict %x", value)
}

// fields reads fields of a key or value.
type fields struct {
	left []byte
	size int // of addresses
	bad  bool
}

// is records whether a field is as it should be.
func (f *fields) is(right bool) { f.bad = f.bad || !right }

func (f *fields) next(size int) []byte {
	whole := (size + register - 1) / register * register
	if len(f.left) < whole {
		f.bad, f.left = true, nil
		return make([]byte, size)
	}
	field := f.left[:size]
	f.left = f.left[whole:]
	return field
}

func (f *fields) addr() netip.Addr {
	a, _ := netip.AddrFromSlice(f.next(f.size))
	return a
}

func (f *fields) port() uint16 { return binary.BigEndian.Uint16(f.next(2)) }

func (f *fields) protocol() string {
	number := f.next(1)[0]
	for name, n := range Protocols {
		if n == number {
			return name
		}
	}
	f.bad = true
	return ""
}

// between is the prefix from its first to its last address, invalid if there is none.
func between(from, to netip.Addr) netip.Prefix {
	a, b := from.AsSlice(), to.AsSlice()
	bits := 0
	for bits < 8*len(a) && (a[bits/8]^b[bits/8])&(0x80>>(bits%8)) == 0 {
		bits++
	}
	p := netip.PrefixFrom(from, bits)
	if p.Masked().Addr() != from || string(last(p)) != string(b) {
		return netip.Prefix{}
	}
	return p
}
