// Package notify follows changes of this network namespace that the kernel announces by netlink.
package notify

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// PacketFilter calls changed once it follows, and after changes of nftables, including iptables-nft, until ctx ends.
// iptables-legacy sends no notifications.
func PacketFilter(ctx context.Context, changed func()) error {
	return follow(ctx, unix.NETLINK_NETFILTER, changed, unix.NFNLGRP_NFTABLES)
}

// Forwarding calls changed once it follows, and after changes of routing rules, and of sysctls for forwarding and reverse
// paths, until ctx ends.
func Forwarding(ctx context.Context, changed func()) error {
	return follow(ctx, unix.NETLINK_ROUTE, changed,
		unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
}

// follow calls changed once it follows, after messages of netlink multicast groups, and after lost messages. Messages that
// arrive while changed is at work lead to one more call.
func follow(ctx context.Context, protocol int, changed func(), groups ...uint) error {
	s, err := nl.Subscribe(protocol, groups...)
	if err != nil {
		return fmt.Errorf("following the kernel's network settings: %w", err)
	}
	defer context.AfterFunc(ctx, s.Close)()
	arrived := make(chan struct{}, 1)
	go func() {
		err = receive(s, arrived)
		close(arrived)
	}()
	for range arrived {
		changed()
	}
	if ctx.Err() != nil {
		return nil
	}
	s.Close()
	return fmt.Errorf("following the kernel's network settings: %w", err)
}

// receive receives messages until an error. It fills arrived at its beginning, and after messages, also lost ones.
func receive(s *nl.NetlinkSocket, arrived chan<- struct{}) (err error) {
	for err == nil || errors.Is(err, unix.ENOBUFS) {
		select {
		case arrived <- struct{}{}:
		default: // changed will be called for these messages, too
		}
		_, _, err = s.Receive()
	}
	return err
}
