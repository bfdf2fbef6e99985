package pod

import (
	"encoding/hex"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/ipnet"
)

// FirstHost is the first host number for pods in a node's subnet, after those of the
// router (1) and the management port (2).
const FirstHost = 3

// A Pool hands out the addresses of one node's subnets, at most one subnet of each
// family. Released addresses are reused last, so that stale clients of a deleted pod
// do not reach a new one.
type Pool struct {
	subnets []netip.Prefix
	rounds  []round // by subnet
	held    map[netip.Addr]Key
}

// A round is the position in one subnet. Numbers are of hosts.
type round struct {
	next uint64 // to try first
	mark uint64 // where the round resumes after a restart; 0: no address was handed out
	left uint64 // addresses up to mark
	held int    // addresses in use
}

// NewPool returns a pool in which every address of subnets is free.
func NewPool(subnets []netip.Prefix) *Pool {
	p := &Pool{subnets: subnets, rounds: make([]round, len(subnets)), held: map[netip.Addr]Key{}}
	for i := range p.rounds {
		p.rounds[i].next = FirstHost
	}
	return p
}

// Resume continues the rounds of a former pool, which may be nil, in the subnets of
// both.
func (p *Pool) Resume(former *Pool) {
	if former == nil {
		return
	}
	for i, s := range p.subnets {
		if j := slices.Index(former.subnets, s); j >= 0 {
			p.rounds[i] = former.rounds[j]
			p.rounds[i].held = 0
		}
	}
}

// ResumeAt continues the rounds at the Marks of an earlier run.
func (p *Pool) ResumeAt(marks []netip.Addr) {
	for i, s := range p.subnets {
		for _, a := range marks {
			if n, ok := ipnet.Offset(s, a); ok && n >= FirstHost && n <= ipnet.Hosts(s) {
				p.rounds[i].next, p.rounds[i].mark, p.rounds[i].left = n, n, 0
			}
		}
	}
}

// Marks returns the addresses at which the rounds resume after a restart, so that no address
// handed out recently comes next. It returns nil until Allocate has handed out an address.
func (p *Pool) Marks() (marks []netip.Addr) {
	for i, r := range p.rounds {
		if a, ok := ipnet.Nth(p.subnets[i], r.mark); ok && r.mark != 0 {
			marks = append(marks, a)
		}
	}
	return marks
}

// stride returns the distance, in addresses, by which marks are set ahead: a sixteenth of
// the smallest subnet, 256 at most. So few pods change a mark, and a restart skips few
// addresses.
func (p *Pool) stride() uint64 {
	stride := uint64(256)
	for _, s := range p.subnets {
		stride = min(stride, max(1, ipnet.Hosts(s)/16))
	}
	return stride
}

// Reserve gives one address to pod k. It reports false unless the address is in the
// pool's range and free, or held by k already.
func (p *Pool) Reserve(k Key, ip netip.Addr) bool {
	i, ok := p.subnet(ip)
	if !ok {
		return false
	}
	holder, held := p.held[ip]
	if held {
		return holder == k
	}
	p.held[ip] = k
	p.rounds[i].held++
	return true
}

// IsFree reports whether Reserve would give an address to any pod.
func (p *Pool) IsFree(ip netip.Addr) bool {
	_, held := p.held[ip]
	_, ok := p.subnet(ip)
	return ok && !held
}

// subnet returns the number of the subnet with an address for pods.
func (p *Pool) subnet(ip netip.Addr) (i int, ok bool) {
	i = slices.IndexFunc(p.subnets, func(s netip.Prefix) bool { return s.Contains(ip) })
	if i < 0 {
		return i, false
	}
	n, ok := ipnet.Offset(p.subnets[i], ip)
	return i, ok && n >= FirstHost && n <= ipnet.Hosts(p.subnets[i])
}

// Pass makes Allocate continue after ips, handed out in an earlier run, unless the marks of
// that run are known. Addresses chosen by users must not be passed: the last address of
// a subnet would restart the round, and Allocate would hand out the address of a pod just
// deleted.
func (p *Pool) Pass(ips []netip.Addr) {
	for i, s := range p.subnets {
		for _, ip := range ips {
			if n, ok := ipnet.Offset(s, ip); ok && p.rounds[i].mark == 0 {
				p.rounds[i].next = max(p.rounds[i].next, n+1)
			}
		}
	}
}

// Allocate gives pod k a free address of each subnet without one in have, the pod's present
// addresses. It returns all of them in the order of the subnets. If a subnet is full, it
// changes nothing and returns that subnet.
func (p *Pool) Allocate(k Key, have []netip.Addr) (ips []netip.Addr, full netip.Prefix) {
	hosts := make([]uint64, len(p.subnets)) // 0: none is needed
	for i, s := range p.subnets {
		if j := slices.IndexFunc(have, s.Contains); j >= 0 {
			ips = append(ips, have[j])
			continue
		}
		ip, n, ok := p.free(i)
		if !ok {
			return nil, s
		}
		ips, hosts[i] = append(ips, ip), n
	}
	marked := false
	for i, n := range hosts {
		if n == 0 {
			continue
		}
		p.held[ips[i]] = k
		marked = p.rounds[i].advance(n, ipnet.Hosts(p.subnets[i])) || marked
	}
	if marked {
		p.mark()
	}
	return ips, netip.Prefix{}
}

// advance records that host n of last was handed out. It reports whether n is beyond the mark.
func (r *round) advance(n, last uint64) bool {
	r.held++
	step := n + 1 - r.next
	if n < r.next { // around the end
		step += last - FirstHost + 1
	}
	r.next = n + 1
	if r.mark == 0 || step > r.left {
		return true
	}
	r.left -= step
	return false
}

// mark moves all marks ahead.
func (p *Pool) mark() {
	stride := p.stride()
	for i := range p.rounds {
		r, size := &p.rounds[i], ipnet.Hosts(p.subnets[i])-FirstHost+1
		r.mark, r.left = FirstHost+(r.next-FirstHost+stride)%size, stride
	}
}

// Full returns a subnet without a free address, if there is one.
func (p *Pool) Full() (netip.Prefix, bool) {
	for i, s := range p.subnets {
		if p.isFull(i) {
			return s, true
		}
	}
	return netip.Prefix{}, false
}

func (p *Pool) isFull(i int) bool {
	last := ipnet.Hosts(p.subnets[i])
	return last < FirstHost || uint64(p.rounds[i].held) > last-FirstHost
}

// Compact frees the memory of released addresses.
func (p *Pool) Compact() { p.held = maps.Collect(maps.All(p.held)) }

// free finds the next free address of subnet i and its host number.
func (p *Pool) free(i int) (netip.Addr, uint64, bool) {
	if p.isFull(i) {
		return netip.Addr{}, 0, false
	}
	s := p.subnets[i]
	last := ipnet.Hosts(s)
	n := p.rounds[i].next
	for range last - FirstHost + 1 {
		if n > last {
			n = FirstHost
		}
		ip, _ := ipnet.Nth(s, n)
		if _, held := p.held[ip]; !held {
			return ip, n, true
		}
		n++
	}
	return netip.Addr{}, 0, false
}

// Release takes ips back from pod k. Addresses that k does not hold stay.
func (p *Pool) Release(k Key, ips []netip.Addr) {
	for _, ip := range ips {
		if p.held[ip] != k {
			continue
		}
		delete(p.held, ip)
		i := slices.IndexFunc(p.subnets, func(s netip.Prefix) bool { return s.Contains(ip) })
		p.rounds[i].held--
	}
}

// MAC returns the MAC of a pod with addresses ips: wish, unless it is invalid or may become
// the MAC of another pod of the node. A pod without its former IPv4 or IPv6 address keeps
// the MAC derived from it.
func (p *Pool) MAC(wish string, ips []netip.Addr) string {
	own := ipnet.PodMAC(ips[0])
	if !ipnet.UnicastMAC(wish) {
		return own
	}
	if slices.ContainsFunc(ips, func(ip netip.Addr) bool { return strings.EqualFold(ipnet.PodMAC(ip), wish) }) || !p.derives(wish) {
		return wish
	}
	return own
}

// derives reports whether ipnet.PodMAC makes mac from an address of the pool's subnets.
func (p *Pool) derives(mac string) bool {
	b, err := hex.DecodeString(strings.ReplaceAll(mac, ":", ""))
	if err != nil || b[0] != 0x0a || b[1] != 0x58 {
		return false
	}
	return slices.ContainsFunc(p.subnets, func(s netip.Prefix) bool {
		a := s.Addr().As16()
		copy(a[12:], b[2:])
		ip := netip.AddrFrom16(a)
		if s.Addr().Is4() {
			ip = ip.Unmap()
		}
		n, ok := ipnet.Offset(s, ip)
		return ok && n <= ipnet.Hosts(s)
	})
}
