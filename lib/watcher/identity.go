package watcher

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"

	"ovn-k8s/lib/config"
)

// A process identifies a process among those of all hosts, also of cloned hosts with the same system-id.
type process struct {
	host    string // for people
	pid     int
	started string // proc(5), /proc/PID/stat, starttime
	machine string // of the boot and the PID namespace
}

// thisProcess identifies this process. host is its host's system-id or name.
func thisProcess(cfg config.Config) process {
	p := process{host: cfg.SystemID, pid: os.Getpid()}
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
func (p process) String() string {
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

// dead reports whether identity is a process of this machine that has ended: its Lease need not expire.
func (p process) dead(identity string) bool {
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
