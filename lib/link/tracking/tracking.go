// Package tracking raises the limits of the kernel's connection tracking, as kube-proxy does (pkg/proxy/conntrack of Kubernetes).
package tracking

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Dir has the sysctls of connection tracking.
const Dir = "/proc/sys/net/netfilter"

// kube-proxy's defaults.
const (
	perCPU    = 32 << 10
	minimum   = 128 << 10
	closeWait = 60 * 60 // seconds; the kernel's minute ends half-closed connections too early
)

// A limit is a sysctl, and the value that it shall have at least.
type limit struct {
	name string
	low  int
}

func limits() []limit {
	return []limit{
		{"nf_conntrack_max", max(perCPU*runtime.NumCPU(), minimum)},
		{"nf_conntrack_tcp_timeout_close_wait", closeWait},
	}
}

// Limits are those of one run of a program. The zero value has raised none.
type Limits struct {
	tried map[string]bool // by name
}

// Raise raises too low limits in a directory, each once, as kube-proxy does at its start: another value later is an
// operator's. It returns the changes, and an error for each that is too low still. Missing limits wait: the kernel has not
// loaded nf_conntrack yet. Those that the kernel makes read-only are skipped, as nf_conntrack_max is outside of the initial
// network namespace.
func (all *Limits) Raise(dir string) (changes []string, failed []error) {
	if all.tried == nil {
		all.tried = map[string]bool{}
	}
	for _, l := range limits() {
		if all.tried[l.name] {
			continue
		}
		changed, err := l.raise(filepath.Join(dir, l.name))
		all.tried[l.name] = !errors.Is(err, fs.ErrNotExist)
		switch {
		case err != nil && all.tried[l.name]:
			failed = append(failed, fmt.Errorf("sysctl net.netfilter.%s is not raised to %d, set it on this host: %w", l.name, l.low, err))
		case changed:
			changes = append(changes, fmt.Sprintf("set sysctl net.netfilter.%s to %d", l.name, l.low))
		}
	}
	return changes, failed
}

func (l limit) raise(path string) (changed bool, err error) {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&0o200 == 0 {
		return false, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	// 0 is no limit of nf_conntrack_max.
	if is, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || is == 0 || is >= l.low {
		return false, err
	}
	err = os.WriteFile(path, []byte(strconv.Itoa(l.low)), 0o644)
	return err == nil, err
}
