package netfault

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// FreePort returns a free TCP port of an address, for a server started later or
// again. The range excludes the kernel's ephemeral ports (ip_local_port_range in
// ip(7)) and NodePorts, so nothing else takes the port meanwhile.
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
