package wire

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// FreePort returns a TCP port of an address that is free and stays so, for a server
// that starts later, or again. So it is none that the kernel gives to connections
// (ip_local_port_range in ip(7)), nor to NodePorts.
func FreePort(addr string) (int, error) {
	for {
		port := 10000 + rand.IntN(20000)
		l, err := net.Listen("tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
		switch {
		case err == nil:
			return port, l.Close()
		case !errors.Is(err, syscall.EADDRINUSE):
			return 0, fmt.Errorf("looking for a free port: %w", err)
		}
	}
}
