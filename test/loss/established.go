package main

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
)

// lineInterval is the time between two lines on an established connection.
const lineInterval = 500 * time.Millisecond

// lostAfter is the time without an answer after which a connection counts as lost: the kernel has sent the line seven
// times.
func lostAfter() time.Duration { return limit.Of(30 * time.Second) }

// A held is an established connection: it sends a line regularly, each answered by the server.
type held struct {
	place place
	conn  net.Conn

	mu      sync.Mutex
	silence time.Duration // the longest until an answer
	lost    error
}

// A holder has established connections.
type holder struct {
	end context.CancelFunc
	wg  sync.WaitGroup
	all []*held
}

// hold opens connections from places by turns, and keeps them until their end or stop.
func (f *field) hold(ctx context.Context, places []place) (*holder, error) {
	ctx, end := context.WithCancel(ctx)
	h := &holder{end: end}
	for i := range f.established {
		c := &held{place: places[i%len(places)]}
		err := probe.In(c.place.netns, func() (err error) {
			d := net.Dialer{Timeout: askTime, LocalAddr: &net.TCPAddr{Port: f.ports.next()}}
			c.conn, err = d.DialContext(ctx, "tcp", c.place.to.String())
			return err
		})
		if err != nil {
			h.stop()
			return nil, err
		}
		h.all = append(h.all, c)
		h.wg.Go(func() { c.run(ctx) })
	}
	return h, nil
}

// run sends lines until ctx ends or the connection is lost.
func (c *held) run(ctx context.Context) {
	defer c.conn.Close()
	tick := time.NewTicker(lineInterval)
	defer tick.Stop()
	buffer := make([]byte, 512)
	for {
		began := time.Now()
		_ = c.conn.SetDeadline(began.Add(lostAfter()))
		_, err := c.conn.Write([]byte("hello\n"))
		if err == nil {
			_, err = c.conn.Read(buffer)
		}
		c.mu.Lock()
		if c.silence = max(c.silence, time.Since(began)); err != nil {
			c.lost = err
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// stop waits for the last answers and ends the connections. It returns the lost ones, by their places' names, how many
// of these were reset or closed, and the longest silence of the others.
func (h *holder) stop() (lost map[string]int, reset int, silence time.Duration) {
	h.end()
	h.wg.Wait()
	lost = map[string]int{}
	for _, c := range h.all {
		switch {
		case c.lost == nil:
			silence = max(silence, c.silence)
		default:
			lost[c.place.name]++
			if !errors.Is(c.lost, os.ErrDeadlineExceeded) {
				reset++
			}
		}
	}
	return lost, reset, silence
}
