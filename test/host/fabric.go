package host

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ovn-k8s/test/probe"
)

//go:embed fabric.sh
var fabricScript string

// dialTimeout bounds the connection of Forward to its target.
const dialTimeout = 5 * time.Second

// A segment is a layer 2 network of a fabric. The fabric's own addresses on it are
// the default gateways of connected hosts.
type segment struct {
	bridge     string
	prefix     string // of the names of ports
	ipv4, ipv6 netip.Prefix
}

// The segments. Their IPv4 prefixes are from the benchmarking range (RFC 2544).
var (
	// underlay connects eth0 of every host.
	underlay = segment{"br0", "host", netip.MustParsePrefix("198.18.0.1/24"), netip.MustParsePrefix("fd00:198:18::1/64")}
	// second connects eth1 of hosts with two NICs.
	second = segment{"br1", "nic", netip.MustParsePrefix("198.18.1.1/24"), netip.MustParsePrefix("fd00:198:18:1::1/64")}
	// beyond connects the hosts outside. Other hosts reach it through the fabric's router.
	beyond = segment{"br2", "out", netip.MustParsePrefix("198.19.0.1/24"), netip.MustParsePrefix("fd00:198:19::1/64")}
)

// A Fabric connects hosts: bridges in a separate network namespace, and a router
// between them. Its own addresses act as a neighbour outside the cluster. Hosts
// with Options.Outside are behind the router.
type Fabric struct {
	holder *holder
	mu     sync.Mutex
	hosts  int
	// routers counts the calls of ReplaceRouter.
	routers atomic.Uint32

	closers []io.Closer
	relays  sync.WaitGroup
}

// NewFabric creates a fabric. The caller must Close it.
func NewFabric() (*Fabric, error) {
	segments := []segment{underlay, second, beyond}
	var bridges []string
	for _, s := range segments {
		bridges = append(bridges, s.bridge)
	}
	holder, err := hold(fabricScript, []string{"--net"}, bridges...)
	if err != nil {
		return nil, fmt.Errorf("making a fabric: %w", err)
	}
	f := &Fabric{holder: holder}
	for _, s := range segments {
		if err := address(f.command, s.bridge, []netip.Prefix{s.ipv4, s.ipv6}, nil); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// FabricIPv4 is the IPv4 address of every Fabric on the hosts' network, and the
// hosts' gateway.
func FabricIPv4() netip.Addr { return underlay.ipv4.Addr() }

// FabricIPv6 is the IPv6 address of every Fabric on the hosts' network, and the
// hosts' gateway.
func FabricIPv6() netip.Addr { return underlay.ipv6.Addr() }

// FabricBeyond are the addresses of every Fabric on the network of the hosts outside, IPv4 and IPv6: the hosts answer
// them by their default routes.
func FabricBeyond() []netip.Addr { return beyond.gateways() }

// Netns is the path of the fabric's network namespace.
func (f *Fabric) Netns() string { return fmt.Sprintf("/proc/%d/ns/net", f.holder.pid) }

// Close removes the fabric. The hosts lose their eth0.
func (f *Fabric) Close() {
	f.mu.Lock()
	for _, c := range f.closers {
		_ = c.Close()
	}
	f.closers = nil
	f.mu.Unlock()
	f.relays.Wait()
	f.holder.close()
}

// Forward forwards a TCP port of the fabric's addresses to target in this program's
// network namespace, such as the API server's "127.0.0.1:6443". stop, or Close of
// the fabric, ends it and its connections.
func (f *Fabric) Forward(port int, target string) (stop func(), err error) {
	var l net.Listener
	err = probe.In(f.Netns(), func() (err error) {
		l, err = net.Listen("tcp", ":"+strconv.Itoa(port))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("forwarding port %d: %w", port, err)
	}
	r := &relay{target: target, listener: l, conns: map[net.Conn]bool{}}
	f.mu.Lock()
	f.closers = append(f.closers, r)
	f.mu.Unlock()
	f.relays.Go(r.run)
	return func() { _ = r.Close() }, nil
}

// command prepares a command in the fabric's network namespace.
func (f *Fabric) command(name string, args ...string) *exec.Cmd {
	in := []string{"--target", strconv.Itoa(f.holder.pid), "--net", "--", name}
	cmd := exec.Command("nsenter", append(in, args...)...)
	cmd.Env = Environment()
	return cmd
}

// Route adds a route to the fabric's router, such as a route to pods through a
// gateway. withdraw removes it.
func (f *Fabric) Route(to netip.Prefix, via netip.Addr) (withdraw func(), err error) {
	if err := batch(f.command, fmt.Sprintf("route add %v via %v", to, via)); err != nil {
		return nil, fmt.Errorf("routing %v: %w", to, err)
	}
	return func() { _ = batch(f.command, fmt.Sprintf("route del %v via %v", to, via)) }, nil
}

// Narrow sets the MTU in bytes of the fabric's router towards the hosts outside; widen resets it. The router answers
// larger packets with ICMP errors.
func (f *Fabric) Narrow(mtu int) (widen func(), err error) {
	if err := batch(f.command, fmt.Sprintf("link set %s mtu %d", beyond.bridge, mtu)); err != nil {
		return nil, fmt.Errorf("setting the router's MTU: %w", err)
	}
	return func() { _ = batch(f.command, "link set "+beyond.bridge+" mtu 1500") }, nil
}

// ReplaceRouter changes the MAC of the fabric's router on the network of second NICs without an announcement, as when
// another router takes its place.
func (f *Fabric) ReplaceRouter() error {
	mac := net.HardwareAddr{2, 0, 0, 0, 0xff, byte(0x10 + f.routers.Add(1))}
	if err := batch(f.command, fmt.Sprintf("link set %s address %v", second.bridge, mac)); err != nil {
		return fmt.Errorf("replacing the router: %w", err)
	}
	return nil
}

// connect creates the NICs, addresses and default routes of h.
func (f *Fabric) connect(h *Host, o Options) error {
	f.mu.Lock()
	f.hosts++
	n := byte(10 + f.hosts)
	f.mu.Unlock()
	h.fabric = f
	first := underlay
	if o.Outside {
		first = beyond
	}
	h.Addresses, h.gateways = first.addresses(n), first.gateways()
	if err := f.plug(h, first, "eth0", n); err != nil {
		return err
	}
	if err := address(h.Command, "eth0", h.Addresses, h.gateways); err != nil || !o.SecondNIC {
		return err
	}
	if err := f.plug(h, second, "eth1", n); err != nil {
		return err
	}
	return address(h.Command, "eth1", second.addresses(n), nil)
}

// plug connects a NIC of h, number n, to a segment.
func (f *Fabric) plug(h *Host, s segment, nic string, n byte) error {
	port := fmt.Sprintf("%s%d", s.prefix, n)
	h.ports = append(h.ports, port)
	err := batch(f.command,
		fmt.Sprintf("link add %s type veth peer name %s netns %d", port, nic, h.PID()),
		fmt.Sprintf("link set %s master %s up", port, s.bridge))
	if err != nil {
		return err
	}
	return completeChecksums(h.Command, nic)
}

// A Port connects a machine other than a Host to the hosts' network. It does not
// configure the machine: Addresses and Gateways are for its own configuration.
type Port struct {
	Addresses []netip.Prefix // IPv4, IPv6
	Gateways  []netip.Addr   // IPv4, IPv6
	MAC       net.HardwareAddr

	fabric *Fabric
	bridge string
	name   string
	mu     sync.Mutex
	// cut: no carrier; plugged: a NIC exists.
	cut, plugged bool
}

// NewPort creates a port on the hosts' network.
func (f *Fabric) NewPort() *Port { return f.newPort(underlay) }

// NewSecondPort creates a port on the network of second NICs.
func (f *Fabric) NewSecondPort() *Port { return f.newPort(second) }

func (f *Fabric) newPort(s segment) *Port {
	f.mu.Lock()
	f.hosts++
	n := byte(10 + f.hosts)
	f.mu.Unlock()
	return &Port{
		Addresses: s.addresses(n), Gateways: s.gateways(), MAC: net.HardwareAddr{2, 0, 0, 0, 0, n},
		fabric: f, bridge: s.bridge, name: fmt.Sprintf("%s%d", s.prefix, n),
	}
}

// Plug creates a NIC in the network namespace of process pid and connects it to the
// port. The NIC is down. After Cut it has no carrier.
func (p *Port) Plug(pid int, nic string) error {
	p.Unplug()
	p.mu.Lock()
	defer p.mu.Unlock()
	err := batch(p.fabric.command,
		fmt.Sprintf("link add %s type veth peer name %s address %v netns %d", p.name, nic, p.MAC, pid),
		fmt.Sprintf("link set %s master %s %s", p.name, p.bridge, p.state()))
	if err != nil {
		return err
	}
	p.plugged = true
	return completeChecksums(func(name string, args ...string) *exec.Cmd {
		return exec.Command("nsenter", append([]string{"--target", strconv.Itoa(pid), "--net", "--", name}, args...)...)
	}, nic)
}

// Unplug removes the NIC, if there is one.
func (p *Port) Unplug() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = batch(p.fabric.command, "link del "+p.name)
	p.plugged = false
}

// Cut pulls the cable, until Mend.
func (p *Port) Cut() error { return p.carrier(false) }

// Mend undoes Cut.
func (p *Port) Mend() error { return p.carrier(true) }

func (p *Port) carrier(on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = !on
	if !p.plugged {
		return nil
	}
	return batch(p.fabric.command, "link set "+p.name+" "+p.state())
}

// state is the state of the fabric's end of the cable, for ip-link(8).
func (p *Port) state() string {
	if p.cut {
		return "down"
	}
	return "up"
}

// addresses are the addresses of host number n: IPv4, IPv6.
func (s segment) addresses(n byte) []netip.Prefix {
	v4, v6 := s.ipv4.Addr().As4(), s.ipv6.Addr().As16()
	v4[3], v6[15] = n, n
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4(v4), s.ipv4.Bits()),
		netip.PrefixFrom(netip.AddrFrom16(v6), s.ipv6.Bits()),
	}
}

// gateways are the fabric's own addresses.
func (s segment) gateways() []netip.Addr { return []netip.Addr{s.ipv4.Addr(), s.ipv6.Addr()} }

// address brings a link up with exactly the given addresses, without DAD, and with
// default routes.
func address(command func(string, ...string) *exec.Cmd, link string, addrs []netip.Prefix, gateways []netip.Addr) error {
	lines := []string{
		"link set " + link + " up",
		"address flush dev " + link + " scope global",
	}
	for _, a := range addrs {
		line := fmt.Sprintf("address add %v dev %s", a, link)
		if a.Addr().Is6() {
			line += " nodad"
		}
		lines = append(lines, line)
	}
	for _, g := range gateways {
		all := "0.0.0.0/0"
		if g.Is6() {
			all = "::/0"
		}
		lines = append(lines, fmt.Sprintf("route replace %s via %v dev %s", all, g, link))
	}
	return batch(command, lines...)
}

// batch runs lines with ip -batch (ip(8)).
func batch(command func(string, ...string) *exec.Cmd, lines ...string) error {
	cmd := command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	_, _, err := run(context.Background(), cmd, "ip", lines)
	return err
}

// A relay forwards TCP connections.
type relay struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    map[net.Conn]bool // nil: closed
}

func (r *relay) run() {
	defer r.wg.Wait()
	for {
		conn, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			r.wg.Go(func() { r.pass(conn) })
		}
	}
}

// pass copies in both directions until both have ended.
func (r *relay) pass(near net.Conn) {
	defer near.Close()
	far, err := net.DialTimeout("tcp", r.target, dialTimeout)
	if err != nil {
		return // the client sees a closed connection
	}
	defer far.Close()
	if !r.hold(near, far) {
		return
	}
	defer r.release(near, far)
	var wg sync.WaitGroup
	for _, attempt := range [][2]net.Conn{{near, far}, {far, near}} {
		wg.Go(func() {
			_, _ = io.Copy(attempt[0], attempt[1])
			_ = attempt[0].(*net.TCPConn).CloseWrite()
		})
	}
	wg.Wait()
}

func (r *relay) hold(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		if r.conns != nil {
			r.conns[c] = true
		}
	}
	return r.conns != nil
}

func (r *relay) release(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		delete(r.conns, c)
	}
}

// Close ends the relay and breaks its connections.
func (r *relay) Close() error {
	err := r.listener.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
	return err
}
