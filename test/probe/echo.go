package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// Echoes records the sources of ICMP echo requests received in a network namespace.
// Echo replies do not contain them.
type Echoes struct {
	conns []net.PacketConn
	wg    sync.WaitGroup
	mu    sync.Mutex
	seen  map[netip.Addr]int
}

// ListenEchoes listens in the network namespace of the file netns. The caller must
// Close it.
func ListenEchoes(netns string) (*Echoes, error) {
	e := &Echoes{seen: map[netip.Addr]int{}}
	err := In(netns, func() error {
		for network, request := range map[string]icmp.Type{
			"ip4:icmp": ipv4.ICMPTypeEcho, "ip6:ipv6-icmp": ipv6.ICMPTypeEchoRequest,
		} {
			conn, err := new(net.ListenConfig).ListenPacket(context.Background(), network, "")
			if err != nil {
				return err
			}
			e.conns = append(e.conns, conn)
			e.wg.Go(func() { e.listen(conn, request) })
		}
		return nil
	})
	if err != nil {
		e.Close()
		return nil, fmt.Errorf("listening to echo requests: %w", err)
	}
	return e, nil
}

func (e *Echoes) listen(conn net.PacketConn, request icmp.Type) {
	buffer := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		m, err := icmp.ParseMessage(request.Protocol(), buffer[:n])
		if err != nil || m.Type != request {
			continue
		}
		if a, ok := netip.AddrFromSlice(from.(*net.IPAddr).IP); ok {
			e.mu.Lock()
			e.seen[a.Unmap()]++
			e.mu.Unlock()
		}
	}
}

// From returns the number of requests from an address.
func (e *Echoes) From(a netip.Addr) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen[a]
}

// Close stops listening.
func (e *Echoes) Close() {
	for _, c := range e.conns {
		_ = c.Close()
	}
	e.wg.Wait()
}
