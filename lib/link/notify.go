package link

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// FollowPacketFilter calls changed whenever a rule of nftables changes, those of
// iptables-nft included, until ctx ends. iptables-legacy has no notifications.
// changed must not block.
func FollowPacketFilter(ctx context.Context, changed func()) error {
	return followGroups(ctx, unix.NETLINK_NETFILTER, changed, unix.NFNLGRP_NFTABLES)
}

// FollowForwarding calls changed whenever a sysctl for forwarding or reverse paths,
// or a routing rule, changes, until ctx ends. changed must not block.
func FollowForwarding(ctx context.Context, changed func()) error {
	return followGroups(ctx, unix.NETLINK_ROUTE, changed,
		unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
}

// followGroups calls changed for each message of netlink multicast groups, and
// after messages were lost.
func followGroups(ctx context.Context, protocol int, changed func(), groups ...uint) error {
	s, err := nl.Subscribe(protocol, groups...)
	if err != nil {
		return fmt.Errorf("following the kernel's network settings: %w", err)
	}
	defer context.AfterFunc(ctx, s.Close)()
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
