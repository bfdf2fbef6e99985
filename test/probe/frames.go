package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Send sends Ethernet frames, headers included, on an interface of a network
// namespace.
func Send(netns, iface string, frames ...[]byte) error {
	return In(netns, func() error {
		s, index, err := packetSocket(iface, 0)
		if err != nil {
			return err
		}
		defer s.Close()
		raw, err := s.SyscallConn()
		if err != nil {
			return err
		}
		for _, f := range frames {
			var sent error
			err := raw.Write(func(fd uintptr) bool {
				sent = unix.Sendto(int(fd), f, 0, &unix.SockaddrLinklayer{Ifindex: index})
				return !errors.Is(sent, unix.EAGAIN)
			})
			if err = errors.Join(err, sent); err != nil {
				return fmt.Errorf("sending a frame by %s: %w", iface, err)
			}
		}
		return nil
	})
}

// packetSocket opens a packet socket on an interface. It receives frames of
// protocol; 0 means none.
func packetSocket(iface string, protocol uint16) (*os.File, int, error) {
	i, err := net.InterfaceByName(iface)
	if err != nil {
		return nil, 0, fmt.Errorf("interface %s: %w", iface, err)
	}
	swapped := protocol<<8 | protocol>>8 // in network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("opening a packet socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swapped, Ifindex: i.Index}); err != nil {
		_ = unix.Close(fd)
		return nil, 0, fmt.Errorf("binding a packet socket to %s: %w", iface, err)
	}
	return os.NewFile(uintptr(fd), "packets of "+iface), i.Index, nil
}

// A Tap records the frames of an interface.
type Tap struct {
	file *os.File
	wg   sync.WaitGroup

	mu     sync.Mutex
	frames [][]byte
}

// Listen taps an interface of a network namespace. The caller must Close the Tap.
func Listen(netns, iface string) (*Tap, error) {
	t := &Tap{}
	err := In(netns, func() (err error) {
		t.file, _, err = packetSocket(iface, unix.ETH_P_ALL)
		return err
	})
	if err != nil {
		return nil, err
	}
	t.wg.Go(t.read)
	return t, nil
}

func (t *Tap) read() {
	buffer := make([]byte, 65536)
	for {
		n, err := t.file.Read(buffer)
		if err != nil {
			return
		}
		t.mu.Lock()
		t.frames = append(t.frames, bytes.Clone(buffer[:n]))
		t.mu.Unlock()
	}
}

// Saw returns the frames recorded so far that contain marker.
func (t *Tap) Saw(marker []byte) (frames [][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.frames {
		if bytes.Contains(f, marker) {
			frames = append(frames, f)
		}
	}
	return frames
}

// Await waits until a frame containing marker was recorded.
func (t *Tap) Await(ctx context.Context, marker []byte) error {
	for len(t.Saw(marker)) == 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("no frame with %q: %w", marker, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// Close ends the Tap.
func (t *Tap) Close() {
	_ = t.file.Close()
	t.wg.Wait()
}
