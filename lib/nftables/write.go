package nftables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	netfilter "github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ovn-k8s/lib/nftables/element"
	"ovn-k8s/lib/ruleset"
)

const (
	// perMessage bounds the elements in one message: an attribute has at most 64 KiB.
	perMessage = 200
	// sendBuffer is enough for one transaction with the elements of 10 000 Services.
	sendBuffer = 64 << 20
	// answerTimeout bounds a transaction: a kernel without memory answers once, however many answers the library awaits.
	answerTimeout = time.Minute
)

// apply carries out a plan without nft, in one transaction.
func (k kernel) apply(p *plan) error {
	c, err := netfilter.New(netfilter.AsLasting(), netfilter.WithSockOptions(
		func(c *netlink.Conn) error { return c.SetWriteBuffer(sendBuffer) },
		func(c *netlink.Conn) error { return c.SetReadBuffer(sendBuffer) },
		func(c *netlink.Conn) error { return c.SetDeadline(time.Now().Add(answerTimeout)) },
	))
	if err != nil {
		return err
	}
	defer closeLater(c.CloseLasting)
	table := k.table()
	if p.last {
		c.DelTable(table)
		return commit(c)
	}
	rules, err := p.rules(k)
	if err != nil {
		return err
	}
	w := writer{conn: c, table: table, family: k.family}
	for _, s := range p.newSets {
		if err := w.clients(s); err != nil {
			return err
		}
	}
	for _, chain := range p.newChains {
		c.AddChain(&netfilter.Chain{Table: table, Name: chain.Name})
	}
	for _, name := range p.flush {
		c.FlushChain(&netfilter.Chain{Table: table, Name: name})
	}
	for _, s := range p.emptied {
		c.FlushSet(&netfilter.Set{Table: table, Name: s.Name})
	}
	if err := eachMessage(table, bare(p.deleted), c.SetDeleteElements); err != nil {
		return err
	}
	for _, r := range rules {
		if err := w.rule(r); err != nil {
			return err
		}
	}
	if err := eachMessage(table, p.added, c.SetAddElements); err != nil {
		return err
	}
	for _, name := range slices.Concat(p.goneMaps, p.goneSets) {
		c.DelSet(&netfilter.Set{Table: table, Name: name})
	}
	for _, name := range p.gone {
		c.DelChain(&netfilter.Chain{Table: table, Name: name})
	}
	return commit(c)
}

// commit sends the transaction. If the kernel refuses many of its messages, the error is the first one's.
func commit(c *netfilter.Conn) error {
	err := c.Flush()
	var all interface{ Unwrap() []error }
	for errors.As(err, &all) {
		err = all.Unwrap()[0]
	}
	return err
}

// eachMessage calls send with elements of one set, as many as one message may have.
func eachMessage(table *netfilter.Table, changes []change, send func(*netfilter.Set, []netfilter.SetElement) error) error {
	for len(changes) > 0 {
		set := changes[0].set
		var elements []netfilter.SetElement
		for len(changes) > 0 && len(elements) < perMessage && changes[0].set.Name == set.Name {
			e, err := element.Encode(set, changes[0].Element)
			if err != nil {
				return fmt.Errorf("element of %s: %w", set.Name, err)
			}
			elements, changes = append(elements, e), changes[1:]
		}
		if err := send(&netfilter.Set{Table: table, Name: set.Name, IsMap: set.IsMap()}, elements); err != nil {
			return err
		}
	}
	return nil
}

// bare returns changes without values, since an element is deleted by its key.
func bare(changes []change) []change {
	out := slices.Clone(changes)
	for i, c := range out {
		out[i].set.Value, out[i].Element = ruleset.None, c.Bare()
	}
	return out
}

// A writer writes rules and sets into a transaction without nft, as nft would write them.
type writer struct {
	conn   *netfilter.Conn
	table  *netfilter.Table
	family netip.Addr
	sets   uint32 // so far, in this transaction
}

// clients makes a set of clients with a timeout. It has no size: then the kernel begins with a small table, and takes at most
// 65 535 clients. For a size of that number it allocates a megabyte at once, and there is a set for each endpoint.
func (w *writer) clients(s ruleset.Set) error {
	kind := netfilter.TypeIPAddr
	if w.family.Is6() {
		kind = netfilter.TypeIP6Addr
	}
	w.sets++
	return w.conn.AddSet(&netfilter.Set{
		Table: w.table, ID: w.sets, Name: s.Name, KeyType: kind, KeyByteOrder: binaryutil.BigEndian,
		Dynamic: true, HasTimeout: true, Timeout: time.Duration(s.Timeout) * time.Second,
	}, nil)
}

// rule changes a rule.
func (w *writer) rule(c ruleChange) error {
	r := &netfilter.Rule{Table: w.table, Chain: &netfilter.Chain{Name: c.chain}}
	if c.add == nil {
		r.Handle = c.handle
		return w.conn.DelRule(r)
	}
	for _, s := range c.add.Statements {
		expressions, err := w.expressions(s)
		if err != nil {
			return fmt.Errorf("rule %q: %w", c.add.Text, err)
		}
		r.Exprs = append(r.Exprs, expressions...)
	}
	r.UserData = userdata.AppendString(nil, userdata.TypeComment, signed(*c.add))
	if c.handle == 0 {
		w.conn.AddRule(r)
		return nil
	}
	r.Position = c.handle
	w.conn.InsertRule(r)
	return nil
}

// expressions returns a statement as the kernel has it. Values are in register 1.
func (w *writer) expressions(s ruleset.Statement) ([]expr.Any, error) {
	switch s := s.(type) {
	case ruleset.FromInterface:
		name := make([]byte, unix.IFNAMSIZ)
		copy(name, s.Name)
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, equal(name)}, nil
	case ruleset.FromHere:
		return []expr.Any{&expr.Fib{Register: 1, FlagSADDR: true, ResultADDRTYPE: true}, equal(binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL))}, nil
	case ruleset.FromOneOf:
		return []expr.Any{w.source(), &expr.Lookup{SourceRegister: 1, SetName: s.Set}}, nil
	case ruleset.Remember:
		return []expr.Any{w.source(), &expr.Dynset{SrcRegKey: 1, SetName: s.Set, Operation: unix.NFT_DYNSET_OP_UPDATE}}, nil
	case ruleset.SetMark:
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(^s.Bits), Xor: binaryutil.NativeEndian.PutUint32(s.Bits)},
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
		}, nil
	case ruleset.Translate:
		return w.translation(s)
	case ruleset.GoTo:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: s.Chain}}, nil
	case ruleset.GoToAny:
		return w.choice(s)
	}
	return nil, fmt.Errorf("unknown statement %v", s)
}

// equal matches the value in register 1.
func equal(value []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: value} }

// source loads the source address from its place in the header (RFC 791 section 3.1, RFC 8200 section 3).
func (w *writer) source() expr.Any {
	if w.family.Is6() {
		return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 8, Len: 16}
	}
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4}
}

func (w *writer) translation(s ruleset.Translate) ([]expr.Any, error) {
	number, known := element.Protocols[s.Protocol]
	if !known {
		return nil, fmt.Errorf("unknown protocol %q", s.Protocol)
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal([]byte{number}),
		&expr.Immediate{Register: 1, Data: s.To.Addr().AsSlice()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(s.To.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(w.table.Family), RegAddrMin: 1, RegProtoMin: 2, Specified: true},
	}, nil
}

// choice makes a map of numbers, and draws one of them. They are in network byte order: the library declares maps without
// a name so.
func (w *writer) choice(s ruleset.GoToAny) ([]expr.Any, error) {
	w.sets++
	m := netfilter.Set{Table: w.table, ID: w.sets, Name: "__map%d", Anonymous: true, Constant: true, IsMap: true, KeyType: netfilter.TypeInteger, DataType: netfilter.TypeVerdict}
	if err := w.conn.AddSet(&m, nil); err != nil {
		return nil, err
	}
	cases := make([]netfilter.SetElement, len(s.Chains))
	for i, chain := range s.Chains {
		cases[i] = netfilter.SetElement{Key: binaryutil.BigEndian.PutUint32(uint32(i)), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
	}
	m.Anonymous = false // or the library refuses to add elements; the kernel knows the map by its number
	for part := range slices.Chunk(cases, perMessage) {
		if err := w.conn.SetAddElements(&m, part); err != nil {
			return nil, err
		}
	}
	return []expr.Any{
		&expr.Numgen{Register: 1, Modulus: uint32(len(cases)), Type: unix.NFT_NG_RANDOM},
		&expr.Byteorder{SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 4, Size: 4},
		&expr.Lookup{SourceRegister: 1, DestRegister: 0, IsDestRegSet: true, SetName: m.Name, SetID: m.ID},
	}, nil
}
