package nftables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	netfilter "github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ovn-k8s/lib/nftables/element"
)

// A kernel reads and changes our table by netlink, without a process. The text of rules is the work of nft.
type kernel struct{ family netip.Addr }

// A rule of the kernel.
type rule struct {
	chain, comment string
	handle         uint64
}

func (k kernel) table() *netfilter.Table {
	if k.family.Is6() {
		return &netfilter.Table{Name: TableName, Family: netfilter.TableFamilyIPv6}
	}
	return &netfilter.Table{Name: TableName, Family: netfilter.TableFamilyIPv4}
}

// closeLater closes a netlink socket, and does not wait for it: the kernel first frees what former transactions have deleted,
// at the end of a grace period of RCU, and that takes some 10 ms (nft_rcv_nl_event in Linux 6.10 and later, and backports).
func closeLater(close func() error) {
	go func() { _ = close() }()
}

// read reads our table. The answers are of one moment only if the generation did not change meanwhile.
func (k kernel) read() (*state, error) {
	s := &state{chains: map[string][]string{}, sets: map[string]contents{}, maps: map[string]contents{}}
	c, err := netfilter.New(netfilter.AsLasting())
	if err != nil {
		return nil, err
	}
	defer closeLater(c.CloseLasting)
	table := k.table()
	tables, err := c.ListTablesOfFamily(table.Family)
	if err != nil {
		return nil, fmt.Errorf("listing tables: %w", err)
	}
	if !slices.ContainsFunc(tables, func(t *netfilter.Table) bool { return t.Name == TableName }) {
		return s, nil
	}
	s.there = true
	chains, err := c.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return nil, fmt.Errorf("listing chains: %w", err)
	}
	for _, chain := range chains {
		if chain.Table.Name == TableName {
			s.chains[chain.Name] = nil
		}
	}
	rules, err := k.rules("")
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		s.chains[r.chain] = append(s.chains[r.chain], r.comment)
	}
	return s, k.readSets(c, s)
}

// readSets reads sets and maps. The elements of a set with a timeout are the kernel's.
func (k kernel) readSets(c *netfilter.Conn, s *state) error {
	sets, err := c.GetSets(k.table())
	if err != nil {
		return fmt.Errorf("listing sets: %w", err)
	}
	for _, set := range sets {
		if set.Anonymous {
			continue
		}
		var found contents
		if !set.HasTimeout {
			if found.raw, err = c.GetSetElements(set); err != nil {
				return fmt.Errorf("listing elements of %s: %w", set.Name, err)
			}
		}
		if set.IsMap {
			s.maps[set.Name] = found
		} else {
			s.sets[set.Name] = found
		}
	}
	return nil
}

// rules lists the rules of a chain, or with "" of all chains in one answer, which the library cannot.
func (k kernel) rules(chain string) ([]rule, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	defer closeLater(c.Close)
	which := []netlink.Attribute{{Type: unix.NFTA_RULE_TABLE, Data: []byte(TableName + "\x00")}}
	if chain != "" {
		which = append(which, netlink.Attribute{Type: unix.NFTA_RULE_CHAIN, Data: []byte(chain + "\x00")})
	}
	data, err := netlink.MarshalAttributes(which)
	if err != nil {
		return nil, err
	}
	answers, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE, Flags: netlink.Request | netlink.Dump},
		Data:   append([]byte{byte(k.table().Family), unix.NFNETLINK_V0, 0, 0}, data...),
	})
	if err != nil {
		return nil, fmt.Errorf("listing rules: %w", err)
	}
	var out []rule
	for _, answer := range answers {
		if len(answer.Data) < 4 {
			return nil, errors.New("listing rules: short answer")
		}
		r, err := ruleOf(answer.Data[4:])
		if err != nil {
			return nil, fmt.Errorf("listing rules: %w", err)
		}
		out = append(out, r)
	}
	return out, nil
}

func ruleOf(data []byte) (r rule, err error) {
	attributes, err := element.Attributes(data)
	if err != nil {
		return r, err
	}
	for attributes.Next() {
		switch attributes.Type() {
		case unix.NFTA_RULE_CHAIN:
			r.chain = attributes.String()
		case unix.NFTA_RULE_HANDLE:
			r.handle = attributes.Uint64()
		case unix.NFTA_RULE_USERDATA:
			r.comment, _ = userdata.GetString(attributes.Bytes(), userdata.TypeComment)
		}
	}
	return r, attributes.Err()
}
