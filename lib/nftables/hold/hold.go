// Package hold keeps connections while another program flushes all rules of nftables.
package hold

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// TableName is the name of the table of NAT, one of each family.
const TableName = "ovn-k8s-hold"

// tableOwner is NFT_TABLE_F_OWNER of linux/netfilter/nf_tables.h: the table belongs to a socket, and goes with it.
const tableOwner = 2

const chain = "established"

// NAT keeps the kernel translating packets of established connections of a family until release. Otherwise it stops
// when "nft flush ruleset" deletes the last chain for NAT: then this host takes the packets for its own, and resets the
// connections. The means is a table that belongs to a socket: other programs cannot delete it, and the kernel does when the
// process ends. Its chain makes the kernel translate, and its rule, which does nothing, makes it track connections. Linux
// 5.12 or later is needed.
func NAT(family netip.Addr) (release func(), err error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	if err := hold(c, protocol(family)); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("making table %s of nftables: %w", TableName, err)
	}
	return func() { _ = c.Close() }, nil
}

func protocol(family netip.Addr) byte {
	if family.Is6() {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// hold makes the table, its chain and rule in one transaction.
func hold(c *netlink.Conn, family byte) error {
	hook, err := netlink.MarshalAttributes([]netlink.Attribute{number(unix.NFTA_HOOK_HOOKNUM, unix.NF_INET_POST_ROUTING), number(unix.NFTA_HOOK_PRIORITY, 100)})
	if err != nil {
		return err
	}
	tracked, err := expr.Marshal(family, &expr.Ct{Key: expr.CtKeySTATE, Register: 1})
	if err != nil {
		return err
	}
	expressions, err := netlink.MarshalAttributes([]netlink.Attribute{nested(unix.NFTA_LIST_ELEM, tracked)})
	if err != nil {
		return err
	}
	var messages []netlink.Message
	for _, object := range []struct {
		kind       netlink.HeaderType
		attributes []netlink.Attribute
	}{
		{unix.NFT_MSG_NEWTABLE, []netlink.Attribute{name(unix.NFTA_TABLE_NAME, TableName), number(unix.NFTA_TABLE_FLAGS, tableOwner)}},
		{unix.NFT_MSG_NEWCHAIN, []netlink.Attribute{name(unix.NFTA_CHAIN_TABLE, TableName), name(unix.NFTA_CHAIN_NAME, chain), name(unix.NFTA_CHAIN_TYPE, "nat"), nested(unix.NFTA_CHAIN_HOOK, hook)}},
		{unix.NFT_MSG_NEWRULE, []netlink.Attribute{name(unix.NFTA_RULE_TABLE, TableName), name(unix.NFTA_RULE_CHAIN, chain), nested(unix.NFTA_RULE_EXPRESSIONS, expressions)}},
	} {
		data, err := netlink.MarshalAttributes(object.attributes)
		if err != nil {
			return err
		}
		messages = append(messages, netlink.Message{
			Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | object.kind, Flags: netlink.Request | netlink.Acknowledge | netlink.Create},
			Data:   append([]byte{family, unix.NFNETLINK_V0, 0, 0}, data...),
		})
	}
	if _, err := c.SendMessages(transaction(messages)); err != nil {
		return err
	}
	for range messages {
		if _, err := c.Receive(); err != nil {
			return err
		}
	}
	return nil
}

// transaction puts messages between the marks of a transaction.
func transaction(messages []netlink.Message) []netlink.Message {
	mark := func(kind netlink.HeaderType) []netlink.Message {
		return []netlink.Message{{Header: netlink.Header{Type: kind, Flags: netlink.Request}, Data: []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}}}
	}
	return slices.Concat(mark(unix.NFNL_MSG_BATCH_BEGIN), messages, mark(unix.NFNL_MSG_BATCH_END))
}

func name(kind uint16, text string) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: []byte(text + "\x00")}
}

func number(kind uint16, n uint32) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: binary.BigEndian.AppendUint32(nil, n)}
}

func nested(kind uint16, data []byte) netlink.Attribute {
	return netlink.Attribute{Type: kind | unix.NLA_F_NESTED, Data: data}
}
