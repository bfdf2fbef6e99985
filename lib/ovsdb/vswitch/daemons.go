package vswitch

import (
	"cmp"
	"net"
	"os"
	"path/filepath"
	"time"
)

// A Daemon is a program without which pods get no network.
type Daemon struct {
	Program string
	Socket  string // pattern of its control socket
}

// Stopped returns those of ovs-vswitchd and ovn-controller that do not answer at their control sockets. rundir is that of Open
// vSwitch; OVN has its own, of the variable OVN_RUNDIR.
func Stopped(rundir string) (all []Daemon) {
	for _, d := range []struct{ program, dir string }{
		{"ovs-vswitchd", rundir}, {"ovn-controller", cmp.Or(os.Getenv("OVN_RUNDIR"), "/var/run/ovn")},
	} {
		socket := filepath.Join(d.dir, d.program+".*.ctl")
		if !answers(d.dir, socket) {
			all = append(all, Daemon{d.program, socket})
		}
	}
	return all
}

// answers reports whether a process answers at a control socket. Without the directory, the socket's location is unknown and
// the daemon counts as running.
func answers(dir, socket string) bool {
	if _, err := os.Stat(dir); err != nil {
		return true
	}
	sockets, _ := filepath.Glob(socket) // the pattern is valid
	for _, s := range sockets {
		c, err := net.DialTimeout("unix", s, time.Second)
		if err == nil {
			_ = c.Close()
			return true
		}
	}
	return false
}
