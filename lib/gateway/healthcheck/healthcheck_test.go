package healthcheck

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/service"
)

// stopListening makes the kernel end the listening socket of this process at a port.
func stopListening(t *testing.T, port int) {
	t.Helper()
	for fd := range 1024 {
		listens, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
		if err != nil || listens == 0 {
			continue
		}
		if at, err := syscall.Getsockname(fd); err == nil {
			if in, is := at.(*syscall.SockaddrInet6); is && in.Port == port {
				if err := syscall.Shutdown(fd, syscall.SHUT_RDWR); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
	}
	t.Fatalf("nothing listens at port %d", port)
}

// After an error of its socket, by the kernel, a port is listened at again.
func TestAPortThatEndsIsListenedAtAgain(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	log := logrus.New()
	log.SetOutput(io.Discard)
	s := New(logrus.NewEntry(log), &Proxy{})
	defer s.Close()
	answers := map[uint16]nodeport.Health{uint16(port): {Service: service.Key{Namespace: "default", Name: "lb"}, Local: 1}}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, when := range []string{"at first", "again"} {
		if failed := s.Serve(answers); len(failed) > 0 {
			t.Fatal(failed)
		}
		r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		_ = r.Body.Close()
		stopListening(t, port)
		s.wg.Wait()
	}
}
