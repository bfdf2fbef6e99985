package vswitch

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A daemon is stopped if its socket is missing, or was left by a killed process.
func TestStopped(t *testing.T) {
	ovs, ovn := t.TempDir(), t.TempDir()
	t.Setenv("OVN_RUNDIR", ovn)
	stopped := func(what string, want ...Daemon) {
		t.Helper()
		if diff := cmp.Diff(want, Stopped(ovs)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	vswitchd := Daemon{"ovs-vswitchd", filepath.Join(ovs, "ovs-vswitchd.*.ctl")}
	controller := Daemon{"ovn-controller", filepath.Join(ovn, "ovn-controller.*.ctl")}
	listen := func(path string) *net.UnixListener {
		t.Helper()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	stopped("no socket", vswitchd, controller)
	listen(filepath.Join(ovs, "ovs-vswitchd.1.ctl"))
	left := listen(filepath.Join(ovn, "ovn-controller.2.ctl"))
	stopped("both run")
	left.SetUnlinkOnClose(false)
	left.Close()
	stopped("a socket is left", controller)
	t.Setenv("OVN_RUNDIR", filepath.Join(ovn, "missing"))
	stopped("the directory is unknown")
}
