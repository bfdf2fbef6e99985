package link

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// FollowPacketFilter calls changed once it follows, and after each change of nftables, including iptables-nft, until ctx
// ends. iptables-legacy sends no notifications. changed must not block.
func FollowPacketFilter(ctx context.Context, changed func()) error {
	return followGroups(ctx, unix.NETLINK_NETFILTER, changed, unix.NFNLGRP_NFTABLES)
}

// FollowForwarding calls changed once it follows, and after each change of routing rules, and of sysctls for forwarding
// and reverse paths, until ctx ends. changed must not block.
func FollowForwarding(ctx context.Context, changed func()) error {
	return followGroups(ctx, unix.NETLINK_ROUTE, changed,
		unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
}

// followGroups calls changed once it follows, for each message of netlink multicast groups, and after lost messages.
func followGroups(ctx context.Context, protocol int, changed func(), groups ...uint) error {
	s, err := nl.Subscribe(protocol, groups...)
	if err != nil {
		return fmt.Errorf("following the kernel's network settings: %w", err)
	}
	defer context.AfterFunc(ctx, s.Close)()
	changed()
	for {
		_, _, err := s.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, unix.ENOBUFS):
			s.Close()
			return fmt.Errorf("following the kernel's network settings: %w", err)
		}
		changed()
	}
}
