package gateway

import (
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/tracked"
	"ovn-k8s/lib/gateway/connections"
	"ovn-k8s/lib/gateway/healthcheck"
)

// Where the kernel does not list connections, here for want of rights, an error says so, and the proxy is healthy: the rules are
// written.
func TestUnlistedConnectionsAreNoFailureOfTheProxy(t *testing.T) {
	var err error
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread() // and the thread ends with the goroutine
		header := struct {
			version uint32
			pid     int32
		}{0x20080522, 0} // _LINUX_CAPABILITY_VERSION_3 of linux/capability.h
		var none [6]uint32
		if _, _, errno := syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0); errno != 0 {
			t.Error(errno)
			return
		}
		h := connections.Host{Family: netip.IPv4Unspecified(), Log: logrus.NewEntry(logrus.New())}
		err = h.Forget(tracked.Table{}, nil)
	}()
	<-done
	if err == nil {
		t.Fatal("connections are listed without rights")
	}
	proxy := &healthcheck.Proxy{}
	proxy.Need([]string{partRules4}, false)
	proxy.Tried(partRules4, unserved(err))
	if !proxy.Healthy() {
		t.Errorf("unhealthy because of %v", err)
	}
}
