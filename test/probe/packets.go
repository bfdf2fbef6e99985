package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// settlePause is the time between two looks at the packets without an answer.
const settlePause = 5 * time.Millisecond

// Packets are numbered ICMP echo requests at a fixed pace, each sent once. The kernel of the target answers. An answer may
// be late: only a request without any is lost.
type Packets struct {
	conn net.PacketConn
	to   *net.IPAddr
	id   int
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	sent    int
	waiting map[uint64]time.Time // requests without an answer, by number
	err     error                // of the last request that could not be sent
	last    time.Time            // of an answer
	outage  time.Duration
}

// Ping starts to send requests to the address of p, whatever its network and port. The caller must Close it.
func (p Probe) Ping() (*Packets, error) {
	to, from := p.Address.Addr(), ""
	all := &Packets{to: &net.IPAddr{IP: to.AsSlice()}, id: rand.IntN(0x10000), waiting: map[uint64]time.Time{}, last: time.Now()}
	network := "ip4:icmp"
	var request, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if to.Is6() {
		network, request, reply = "ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	if p.Source.IsValid() {
		from = p.Source.String()
	}
	err := In(p.Netns, func() (err error) {
		all.conn, err = new(net.ListenConfig).ListenPacket(context.Background(), network, from)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("pinging %v: %w", to, err)
	}
	life, end := context.WithCancel(context.Background())
	all.end = end
	all.wg.Go(func() { all.send(life, request) })
	all.wg.Go(func() { all.receive(reply) })
	return all, nil
}

// send sends a request with each tick.
func (p *Packets) send(ctx context.Context, request icmp.Type) {
	tick := time.NewTicker(keystroke)
	defer tick.Stop()
	for number := uint64(1); ; number++ {
		body := &icmp.Echo{ID: p.id, Seq: int(number & 0xffff), Data: binary.BigEndian.AppendUint64(nil, number)}
		packet, err := (&icmp.Message{Type: request, Body: body}).Marshal(nil) // the kernel computes the checksum of ICMPv6
		p.mu.Lock()
		p.sent, p.waiting[number] = p.sent+1, time.Now()
		p.mu.Unlock()
		if err == nil {
			_, err = p.conn.WriteTo(packet, p.to)
		}
		p.failed(err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// failed notes why a request could not be sent.
func (p *Packets) failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.err = err
	}
}

// receive notes answers until the socket is closed.
func (p *Packets) receive(reply icmp.Type) {
	buffer := make([]byte, 1500)
	for {
		n, _, err := p.conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		m, err := icmp.ParseMessage(reply.Protocol(), buffer[:n])
		if err != nil || m.Type != reply {
			continue
		}
		if body, ok := m.Body.(*icmp.Echo); ok && body.ID == p.id && len(body.Data) == 8 {
			p.answered(binary.BigEndian.Uint64(body.Data))
		}
	}
}

// answered notes the answer to a request.
func (p *Packets) answered(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, number)
	now := time.Now()
	p.outage, p.last = max(p.outage, now.Sub(p.last)), now
}

// Lost sends one more request, and waits until all up to that one have their answers, or until ctx ends. It returns the times
// of those without one, and an error about them.
func (p *Packets) Lost(ctx context.Context) (lost []time.Time, err error) {
	p.mu.Lock()
	until := p.sent + 1
	p.mu.Unlock()
	for {
		lost, err := p.without(until)
		if err == nil {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return lost, err
		case <-time.After(settlePause):
		}
	}
}

// without returns an error unless all requests up to a number are sent and have their answers.
func (p *Packets) without(until int) (lost []time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent < until {
		return nil, fmt.Errorf("no packet is sent to %v any more", p.to)
	}
	for number, at := range p.waiting {
		if number <= uint64(until) {
			lost = append(lost, at)
		}
	}
	if len(lost) == 0 {
		return nil, nil
	}
	slices.SortFunc(lost, time.Time.Compare)
	const form = "15:04:05.000"
	err = fmt.Errorf("%d of %d packets to %v are lost, sent from %s to %s", len(lost), until, p.to, lost[0].Format(form), lost[len(lost)-1].Format(form))
	return lost, errors.Join(err, p.err)
}

// Outage is the longest time without an answer, as close as the pace of requests, and up to the last answer.
func (p *Packets) Outage() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outage
}

// Close ends the requests.
func (p *Packets) Close() {
	p.end()
	_ = p.conn.Close()
	p.wg.Wait()
}
