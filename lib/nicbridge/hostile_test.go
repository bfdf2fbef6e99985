package nicbridge

import (
	"context"
	"net"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"ovn-k8s/lib/link"
	"ovn-k8s/test/hostile"
)

// L10: a neighbour keeps sending 10 000 hostile frames while eth0 moves, including the sFlow datagram that makes
// gopacket allocate 16 GiB. The moves succeed, and the process allocates at most 20 MB more than without the frames.
func TestHostileFramesDuringMoves(t *testing.T) {
	w := newWorld(t)
	w.reset()
	w.script("ip -n outside address add 10.0.0.2/24 dev eth0; ip -n outside address add fd00::2/64 dev eth0 nodad")
	if err := w.batch([]string{"address add 10.0.0.1/24 dev eth0", "address add fd00::1/64 dev eth0 nodad",
		"route add default via 10.0.0.2", "-6 route add default via fd00::2"}); err != nil {
		t.Fatal(err)
	}
	w.s.limits.askBefore = usual().askBefore
	frames := hostile.Frames(10_000, 4)
	rounds := func() uint64 {
		for range 3 {
			for _, d := range []Direction{ToBridge, ToNIC} {
				if err := w.move(d); err != nil {
					t.Fatal(err)
				}
			}
		}
		var is runtime.MemStats
		runtime.ReadMemStats(&is)
		return is.Sys
	}
	silent := rounds()
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan int)
	go func() { sent <- w.flood(ctx, frames) }()
	flooded := rounds()
	cancel()
	if n := <-sent; n < len(frames) {
		t.Errorf("%d frames were sent", n)
	}
	if flooded > silent+20<<20 {
		t.Errorf("%d MB from the system, %d MB without hostile frames", flooded>>20, silent>>20)
	}
}

// flood sends frames from the namespace "outside" to eth0, all of them at least once, until ctx ends. It returns the
// number sent.
func (w *world) flood(ctx context.Context, frames [][]byte) (sent int) {
	runtime.LockOSThread() // for good, see Enter
	ns, err := link.OpenNamespace(w.h.Path("/run/netns/outside"))
	if err != nil {
		w.t.Error(err)
		return 0
	}
	defer ns.Close()
	if err := ns.Enter(); err != nil {
		w.t.Error(err)
		return 0
	}
	i, err := net.InterfaceByName("eth0")
	if err != nil {
		w.t.Error(err)
		return 0
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		w.t.Error(err)
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	for ; sent < len(frames) || ctx.Err() == nil; sent++ {
		// a frame refused by the kernel counts as lost
		_ = unix.Sendto(fd, frames[sent%len(frames)], 0, &unix.SockaddrLinklayer{Ifindex: i.Index, Halen: 6})
		if sent%100 == 99 {
			runtime.Gosched()
		}
	}
	return sent
}
