package link

import (
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	// minLimitBurst bytes pass at once: a few segments of 64 KiB, the largest size to which the kernel joins packets
	// of a TCP stream.
	minLimitBurst = 256 << 10
	// limitLatency bounds the time of a packet in the shaper's queue.
	limitLatency = 25 * time.Millisecond
)

// LimitEgress limits packets sent by an interface to rate bit/s, by a token bucket (tc-tbf(8)). A rate of 0 removes
// the limit.
func LimitEgress(name string, rate uint64) error {
	return onLink(name, func(l netlink.Link) error {
		attrs := netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
		if rate == 0 {
			return removeLimit(l)
		}
		bytes := max(rate/8, 1)
		// 10 ms of traffic, since the kernel's timer may be that slow
		burst := uint32(min(max(bytes/100, minLimitBurst), 1<<31))
		limit := min(uint64(float64(bytes)*limitLatency.Seconds())+uint64(burst), 1<<31)
		bucket := &netlink.Tbf{QdiscAttrs: attrs, Rate: bytes, Limit: uint32(limit), Buffer: netlink.Xmittime(bytes, burst)}
		if err := netlink.QdiscReplace(bucket); err != nil {
			return fmt.Errorf("limiting egress of %s to %d bit/s: %w", name, rate, err)
		}
		return nil
	})()
}

func removeLimit(l netlink.Link) error {
	qdiscs, err := dump(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(l) })
	if err != nil {
		return fmt.Errorf("listing the queueing disciplines of %s: %w", l.Attrs().Name, err)
	}
	for _, q := range qdiscs {
		if q.Type() != "tbf" || q.Attrs().Parent != netlink.HANDLE_ROOT {
			continue
		}
		if err := netlink.QdiscDel(q); err != nil {
			return fmt.Errorf("removing the limit of %s: %w", l.Attrs().Name, err)
		}
	}
	return nil
}
