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

// answerTimeout is how long a Caller waits until it counts a datagram as lost.
const answerTimeout = time.Second

// A Caller asks by UDP from one socket all the time, one datagram after the other:
// for whoever balances it is always the same connection.
type Caller struct {
	conn net.Conn
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu  sync.Mutex
	now Called
}

// Called is what happened to a Caller.
type Called struct {
	// By is who answered last, Asked how often there was an answer, and Lost how
	// often there was none.
	By          string
	Asked, Lost int
	// Moves is how often somebody else answered than before.
	Moves int
}

// Call starts to ask a Server from a network namespace. Its user must Close it.
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

// ask sends a datagram and returns who answered.
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

// Called is what happened so far.
func (c *Caller) Called() Called {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Close ends the asking, and returns what happened.
func (c *Caller) Close() Called {
	c.end()
	_ = c.conn.Close()
	c.wg.Wait()
	return c.Called()
}
