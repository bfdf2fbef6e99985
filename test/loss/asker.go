package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ovn-k8s/test/probe"
)

const (
	// askTime bounds a connection: the kernel sends its SYN at 0, 1, 3 and 7 s.
	askTime = 10 * time.Second
	// lateTime is the least duration of a connection with a repeated SYN.
	lateTime = 950 * time.Millisecond
	// firstPort and lastPort are the local ports, used by turns, so that the port of a connection identifies it in a
	// table.
	firstPort, lastPort = 10000, 32000
)

// A place is a client and its destination.
type place struct {
	name  string
	netns string
	to    netip.AddrPort
}

// A try is one connection.
type try struct {
	place    place
	port     int // local
	began    time.Time
	took     time.Duration
	by       string // name of the pod that answered
	err      error
	again    bool // a packet was sent again
	evidence []string
	cause    string // of a failure, if it is known
}

// String describes a connection.
func (t *try) String() string {
	how := "answered by " + t.by
	if t.err != nil {
		how = t.err.Error()
	}
	if t.again {
		how += ", packets were sent again"
	}
	return fmt.Sprintf("%s to %v, port %d, began %s, took %.3f s: %s", t.place.name, t.place.to, t.port, clock(t.began), t.took.Seconds(), how)
}

// ended returns the time of the end of a connection that has ended.
func (t *try) ended() time.Time { return t.began.Add(t.took) }

func clock(t time.Time) string { return t.Format("15:04:05.000") }

// ports are local ports by turns. A port used a moment ago cannot be used again.
type ports struct{ used int }

func (p *ports) next() int {
	p.used++
	return firstPort + p.used%(lastPort-firstPort)
}

// An asker opens connections all the time, one after the other from each place by turns, each once.
type asker struct {
	end, endInspection context.CancelFunc
	wg, inspection     sync.WaitGroup

	mu      sync.Mutex
	pending map[*try]bool
	done    []*try // failed, late, or with a packet sent again
	all     []*try // with their results
	ended   []*try // members of done for inspect to look at
	tried   int
	report  func(*try) // gets these
}

// ask starts an asker. There must be one at a time.
func (f *field) ask(ctx context.Context, places []place, report func(*try)) *asker {
	inspecting, endInspection := context.WithCancel(ctx)
	ctx, end := context.WithCancel(ctx)
	a := &asker{end: end, endInspection: endInspection, pending: map[*try]bool{}, report: report}
	a.inspection.Go(func() { f.inspect(inspecting, a) })
	a.wg.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(f.rate))
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			t := &try{place: places[i%len(places)], port: f.ports.next()}
			a.wg.Go(func() { a.once(context.WithoutCancel(ctx), t) })
			<-tick.C
		}
	})
	return a
}

// once opens one connection and keeps it unless it succeeded at the first try.
func (a *asker) once(ctx context.Context, t *try) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	t.began = time.Now()
	a.mu.Lock()
	a.tried++
	a.pending[t] = true
	a.mu.Unlock()
	t.by, t.err = t.connect(ctx)
	t.took = time.Since(t.began)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending, t)
	a.all = append(a.all, t)
	if t.slow() {
		a.done = append(a.done, t)
		a.ended = append(a.ended, t)
	}
}

// takeEnded returns the ended connections not reported yet.
func (a *asker) takeEnded() []*try {
	a.mu.Lock()
	defer a.mu.Unlock()
	ended := a.ended
	a.ended = nil
	return ended
}

// connect connects, asks a line and returns the name of the pod that answered.
func (t *try) connect(ctx context.Context) (string, error) {
	var conn net.Conn
	err := probe.In(t.place.netns, func() (err error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{Port: t.port}}
		conn, err = d.DialContext(ctx, "tcp", t.place.to.String())
		return err
	})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		return "", err
	}
	answer := make([]byte, 512)
	n, err := conn.Read(answer)
	t.again = retransmitted(conn)
	if err != nil {
		return "", err
	}
	by, _, _ := strings.Cut(string(answer[:n]), " ")
	return by, nil
}

// retransmitted reports whether the kernel sent a packet of a connection again.
func retransmitted(conn net.Conn) (again bool) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		again = err == nil && info.Total_retrans > 0
	})
	return again
}

// waiting returns the connections waiting for longer than a duration.
func (a *asker) waiting(than time.Duration) (out []*try) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for t := range a.pending {
		if time.Since(t.began) > than {
			out = append(out, t)
		}
	}
	return out
}

// note adds evidence to a connection.
func (a *asker) note(t *try, lines ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range lines {
		if !slices.Contains(t.evidence, l) {
			t.evidence = append(t.evidence, l)
		}
	}
}

// stop waits for the last connections. It returns the number of connections, and of those that failed, sent packets
// again, or were only late.
func (a *asker) stop() (tried, failed, again, late int) {
	a.end()
	a.wg.Wait()
	time.Sleep(seenLate + inspectInterval) // for the causes of the last ones
	a.endInspection()
	a.inspection.Wait()
	for _, t := range a.takeEnded() {
		a.report(t)
	}
	for _, t := range a.done {
		switch {
		case t.err != nil:
			failed++
		case t.again:
			again++
		default:
			late++
		}
	}
	return a.tried, failed, again, late
}

// slow reports whether a connection failed, sent a packet again, or was late.
func (t *try) slow() bool { return t.err != nil || t.again || t.took > lateTime }

// gap describes the failed and late connections begun after a moment.
func (a *asker) gap(since time.Time) string {
	n, first, last := a.span(since)
	if n == 0 {
		return "none failed or was late"
	}
	return fmt.Sprintf("%d failed or late, begun %+.2f to %+.2f s", n, first.Sub(since).Seconds(), last.Sub(since).Seconds())
}

// span returns their number, and the times at which the first and the last began.
func (a *asker) span(since time.Time) (n int, first, last time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	count := func(t *try) {
		if t.began.Before(since.Add(-lateTime)) {
			return
		}
		n++
		if first.IsZero() || t.began.Before(first) {
			first = t.began
		}
		if t.began.After(last) {
			last = t.began
		}
	}
	for _, t := range a.done {
		count(t)
	}
	for t := range a.pending {
		if time.Since(t.began) > lateTime {
			count(t)
		}
	}
	return n, first, last
}

// longest returns the longest time in which every new connection of a place failed or was late, with the place. Call it
// after stop.
func (a *asker) longest() (gap time.Duration, where string) {
	slices.SortFunc(a.all, func(s, t *try) int { return s.began.Compare(t.began) })
	since := map[place]time.Time{} // when the first of a row of slow connections began
	for _, t := range a.all {
		switch first, failing := since[t.place]; {
		case !t.slow():
			delete(since, t.place)
		case !failing:
			since[t.place] = t.began
		case t.began.Sub(first) > gap:
			gap, where = t.began.Sub(first), t.place.name
		}
	}
	return gap, where
}
