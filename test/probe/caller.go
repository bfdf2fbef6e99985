package probe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// answerTimeout is the time without an answer after which a Caller counts a datagram as lost.
const answerTimeout = time.Second

// A Caller continuously sends UDP requests from one socket, one after the other. To
// a load balancer they are all the same connection.
type Caller struct {
	conn net.Conn
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu  sync.Mutex
	now Called
}

// Called is the result of a Caller.
type Called struct {
	// By is the name of the last server, Asked the number of answers, and Lost the
	// number of requests without an answer.
	By          string
	Asked, Lost int
	// Moves is the number of answers from a different server than the one before.
	Moves int
}

// Call starts sending requests to a Server from a network namespace. The caller must Close it.
func Call(netns string, server netip.AddrPort) (*Caller, error) {
	c := &Caller{}
	err := In(netns, func() (err error) {
		c.conn, err = net.Dial("udp", server.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("calling %v: %w", server, err)
	}
	life, end := context.WithCancel(context.Background())
	c.end = end
	c.wg.Go(func() { c.run(life) })
	return c, nil
}

func (c *Caller) run(ctx context.Context) {
	tick := time.NewTicker(keystroke)
	defer tick.Stop()
	for {
		by, err := c.ask()
		c.note(by, err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ask sends a datagram and returns the server's name.
func (c *Caller) ask() (by string, err error) {
	if _, err := c.conn.Write([]byte("hello\n")); err != nil {
		return "", err
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(answerTimeout))
	buffer := make([]byte, 512)
	n, err := c.conn.Read(buffer)
	by, _, _ = strings.Cut(string(buffer[:n]), " ")
	return by, err
}

func (c *Caller) note(by string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		c.now.Lost++
		return
	case c.now.By != by && c.now.By != "":
		c.now.Moves++
	}
	c.now.Asked, c.now.By = c.now.Asked+1, by
}

// Called returns the result so far.
func (c *Caller) Called() Called {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Close stops the Caller and returns its result.
func (c *Caller) Close() Called {
	c.end()
	_ = c.conn.Close()
	c.wg.Wait()
	return c.Called()
}
