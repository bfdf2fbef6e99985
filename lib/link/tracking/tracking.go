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

	"golang.org/x/sys/unix"
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

// Raise raises too low limits in a directory, and returns the changes. Missing limits are skipped: the kernel has not
// loaded nf_conntrack yet. So are read-only ones, as nf_conntrack_max is outside of the initial network namespace.
func Raise(dir string) (changes []string, err error) {
	var errs []error
	for _, l := range limits() {
		changed, err := l.raise(filepath.Join(dir, l.name))
		if err != nil {
			errs = append(errs, fmt.Errorf("raising the sysctl %s: %w", l.name, err))
		}
		if changed {
			changes = append(changes, fmt.Sprintf("set sysctl net.netfilter.%s to %d", l.name, l.low))
		}
	}
	return changes, errors.Join(errs...)
}

func (l limit) raise(path string) (changed bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&0o200 == 0 {
		return false, nil
	}
	if err != nil {
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
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		return false, nil
	}
	return err == nil, err
}
