// Package identity tells processes that want the Lease of the watcher apart.
package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// A Process identifies a process among those of all hosts, also of cloned hosts with the same system-id.
type Process struct {
	host    string // for people
	pid     int
	started string // proc(5), /proc/PID/stat, starttime
	machine string // of the boot and the PID namespace
}

// This identifies this process. Without a systemID, the host's name stands for it.
func This(systemID string) Process {
	p := Process{host: systemID, pid: os.Getpid()}
	if p.host == "" {
		p.host, _ = os.Hostname()
	}
	p.host = strings.Join(strings.FieldsFunc(p.host, func(r rune) bool { return r <= ' ' || r == '/' }), "-")
	p.started, _ = startOf(p.pid)
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	sum := sha256.Sum256([]byte(string(boot) + namespace))
	p.machine = hex.EncodeToString(sum[:4])
	return p
}

// String is the identity in the Lease and in the database's token.
func (p Process) String() string {
	return fmt.Sprintf("%s/%d-%s/%s", p.host, p.pid, p.started, p.machine)
}

// startOf returns the start time of a process, in ticks since the boot, and reports whether it is running.
func startOf(pid int) (string, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	_, rest, _ := strings.Cut(string(text), ") ") // after the name, because it may have spaces
	fields := strings.Fields(rest)
	const state, starttime = 0, 19
	if len(fields) <= starttime {
		return "", false
	}
	return fields[starttime], fields[state] != "Z" && fields[state] != "X"
}

// Dead reports whether identity is a process of this machine that has ended: its Lease need not expire.
func (p Process) Dead(identity string) bool {
	parts := strings.Split(identity, "/")
	if len(parts) != 3 || parts[2] != p.machine {
		return false
	}
	pid, started, ok := strings.Cut(parts[1], "-")
	n, err := strconv.Atoi(pid)
	if !ok || err != nil || n <= 0 {
		return false
	}
	now, lives := startOf(n)
	return !lives || now != started
}
