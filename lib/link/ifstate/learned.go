package ifstate

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Flags of IPv6 routes: include/uapi/linux/ipv6_route.h. By them, the kernel finds the route of a router
// advertisement (rt6_get_dflt_router() in net/ipv6/route.c). If the same route exists without them, the kernel
// rejects the advertisement.
const (
	routeUp        = 0x1
	routeGateway   = 0x2
	routeDefault   = 0x00010000
	routeAutomatic = 0x00040000 // RTF_ADDRCONF
	routeExpiring  = 0x00400000
	routeInfo      = 0x00800000
)

// learned returns the flags of a route managed by the kernel: from a router advertisement's default router, or route
// information option (RFC 4191). It is 0 for other routes.
func learned(flags uint32) uint32 {
	if flags&routeAutomatic == 0 || flags&(routeDefault|routeInfo) == 0 {
		return 0
	}
	return flags
}

// markLearned sets Learned of routes. Netlink does not report it.
func markLearned(routes []Record) error {
	text, err := os.ReadFile("/proc/thread-self/net/ipv6_route")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no IPv6
	}
	if err != nil {
		return fmt.Errorf("reading the flags of IPv6 routes: %w", err)
	}
	flags := map[string]uint32{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		f := strings.Fields(lines.Text()) // destination, its length, source, its length, gateway, metric, …, flags, interface
		if len(f) < 10 {
			continue
		}
		if v, err := strconv.ParseUint(f[8], 16, 32); err == nil && learned(uint32(v)) != 0 {
			flags[strings.Join([]string{f[0], f[1], f[4], f[5], f[9]}, " ")] = uint32(v)
		}
	}
	if len(flags) == 0 {
		return nil
	}
	names := map[uint32]string{} // of interfaces, "" for one that is gone
	for n := range routes {
		r := &routes[n]
		if !r.Is6() || len(r.attr(unix.RTA_OIF)) != 4 {
			continue
		}
		index := native.Uint32(r.attr(unix.RTA_OIF))
		name, known := names[index]
		if !known {
			if l, err := netlink.LinkByIndex(int(index)); err == nil {
				name = l.Attrs().Name
			}
			names[index] = name
		}
		r.Learned = flags[fmt.Sprintf("%s %02x %s %08x %s", address16(r.attr(unix.RTA_DST)), r.Header[1], address16(r.attr(unix.RTA_GATEWAY)), r.Metric(), name)]
	}
	return nil
}

// address16 formats an address as in /proc.
func address16(b []byte) string {
	var a [16]byte
	copy(a[:], b)
	return hex.EncodeToString(a[:])
}

// in6Rtmsg is struct in6_rtmsg of linux/ipv6_route.h.
type in6Rtmsg struct {
	dst, src, gateway [16]byte
	kind              uint32
	dstLen, srcLen    uint16
	metric            uint32
	info              uint // expires, in 1/userHZ s
	flags             uint32
	ifindex           int32
}

// addLearned adds the route r, outgoing as c, as the kernel does, so that it is refreshed by router advertisements. Only the
// ioctl accepts the flags; it gives the route the protocol "boot".
func addLearned(c, r Record, age uint32) error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	m := in6Rtmsg{dstLen: uint16(r.Header[1]), metric: r.Metric(), flags: r.Learned | routeUp | routeGateway, ifindex: int32(native.Uint32(c.attr(unix.RTA_OIF)))}
	copy(m.dst[:], r.attr(unix.RTA_DST))
	copy(m.gateway[:], r.attr(unix.RTA_GATEWAY))
	if seconds, ok := expiry(r); ok {
		m.flags |= routeExpiring
		m.info = userHZ * uint(max(seconds-int(age), 1))
	}
	if _, _, no := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCADDRT, uintptr(unsafe.Pointer(&m))); no != 0 {
		return no
	}
	return nil
}

// unlabelled normalizes a learned route for comparing and for removing: the protocol is "ra" or "boot", and the
// router's hop limit and MTU come with its next advertisement.
func (r Record) unlabelled() Record {
	c := r.clone()
	c.Header[5] = unix.RTPROT_UNSPEC
	c.set(unix.RTA_METRICS, nil)
	c.set(unix.RTA_PREF, nil)
	return c
}
