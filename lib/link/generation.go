package link

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// PacketFilterGeneration returns the number of changes of nftables in this network namespace. Each transaction of any
// program is one. The error is unix.EINVAL or the like if the kernel lacks nf_tables.
func PacketFilterGeneration() (uint32, error) {
	answers, err := askGeneration()
	if err != nil {
		return 0, fmt.Errorf("reading the generation of nftables: %w", err)
	}
	for _, answer := range answers {
		if len(answer) < nl.SizeofNfgenmsg {
			continue
		}
		attributes, err := nl.ParseRouteAttr(answer[nl.SizeofNfgenmsg:])
		if err != nil {
			return 0, fmt.Errorf("reading the generation of nftables: %w", err)
		}
		for _, a := range attributes {
			if a.Attr.Type == unix.NFTA_GEN_ID && len(a.Value) == 4 {
				return binary.BigEndian.Uint32(a.Value), nil
			}
		}
	}
	return 0, errors.New("reading the generation of nftables: no answer")
}

// askGeneration asks the kernel.
func askGeneration() ([][]byte, error) {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: unix.NFNETLINK_V0})
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	defer func() { go s.Close() }() // that may take 10 ms: the kernel first frees what former transactions have deleted
	if err := s.SetSendTimeout(&nl.SocketTimeoutTv); err != nil {
		return nil, err
	}
	if err := s.SetReceiveTimeout(&nl.SocketTimeoutTv); err != nil {
		return nil, err
	}
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: s}}
	return request.Execute(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN)
}
