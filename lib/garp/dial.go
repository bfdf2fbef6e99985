package garp

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// Dial returns nil when a TCP connection to HOST:PORT is accepted or refused before ctx ends. After other errors it dials
// again: the kernel gives up after 3 s without an answer to ARP, and a switch may need longer to forward to a new port.
func Dial(ctx context.Context, address string) error {
	return repeat(ctx, func(ctx context.Context) error {
		conn, err := (&net.Dialer{Control: fewSYNs}).DialContext(ctx, "tcp", address)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// fewSYNs ends an attempt after 3 s: the kernel doubles its pauses, and would send nothing in a probe's last seconds.
func fewSYNs(_, _ string, c syscall.RawConn) (err error) {
	_ = c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_SYNCNT, 1) })
	return err
}
