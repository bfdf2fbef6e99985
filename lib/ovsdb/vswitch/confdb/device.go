package confdb

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/ovn-kubernetes/libovsdb/client"

	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// AwaitDevice waits until ovs-vswitchd has opened an interface of a bridge and more is true. cfg is the
// configuration with the interface, 0 if the database had it already. If ovs-vswitchd cannot open the interface,
// AwaitDevice fails at once, with the reason from ovs-vswitchd's log.
func (d *DB) AwaitDevice(ctx context.Context, cfg int, bridge, name string, more func(*vswitchdb.Interface) bool) error {
	return withHint(ctx, d.awaitDevice(ctx, cfg, bridge, name, more))
}

func (d *DB) awaitDevice(ctx context.Context, cfg int, bridge, name string, more func(*vswitchdb.Interface) bool) error {
	if cfg == 0 {
		// After a restart of ovs-vswitchd the interface is late, or will never come: a new configuration number
		// decides.
		if ready, err := d.isReady(ctx, name, more); ready || err != nil {
			return err
		}
		var err error
		if cfg, err = d.commit(ctx, nil); err != nil {
			return err
		}
	}
	return d.Await(ctx, func(c client.Client) (bool, error) {
		if done, err := applied(ctx, c, cfg); !done || err != nil {
			return false, err
		}
		iface := &vswitchdb.Interface{Name: name}
		if _, err := Get(ctx, c, iface); err != nil {
			return false, err
		}
		switch {
		case isOpen(iface):
			return iface.MACInUse != nil && (more == nil || more(iface)), nil
		case iface.Error != nil && *iface.Error != "":
			return false, fmt.Errorf("ovs-vswitchd says: %s", *iface.Error)
		}
		return false, reason(ctx, bridge, name)
	})
}

// isReady reports whether an interface is open and more is true.
func (d *DB) isReady(ctx context.Context, name string, more func(*vswitchdb.Interface) bool) (ready bool, err error) {
	err = d.Read(ctx, func(c client.Client) error {
		iface := &vswitchdb.Interface{Name: name}
		_, err := Get(ctx, c, iface)
		ready = err == nil && isOpen(iface) && iface.MACInUse != nil && (more == nil || more(iface))
		return err
	})
	return ready, err
}

// isOpen reports whether ovs-vswitchd has opened an interface. It writes the port's number together with cur_cfg,
// and the MAC a moment later.
func isOpen(i *vswitchdb.Interface) bool { return i.Ofport != nil && *i.Ofport > 0 }

const (
	// logTail is the part of ovs-vswitchd's log to read, in bytes.
	logTail = 64 << 10
	// reasonLines is how many lines of the log make a reason.
	reasonLines = 3
	// logWait bounds the wait for a line: ovs-vswitchd's threads write the log later than the database
	// (async_append_write in lib/async-append-aio.c of Open vSwitch).
	logWait = 2 * time.Second
)

// reason is an error with the last lines about one of some names in ovs-vswitchd's log.
func reason(ctx context.Context, of ...string) error {
	ctx, cancel := context.WithTimeout(ctx, logWait)
	defer cancel()
	path := filepath.Join(cmp.Or(os.Getenv("OVS_LOGDIR"), "/var/log/openvswitch"), "ovs-vswitchd.log")
	lines := awaitComplaints(ctx, path, of)
	if len(lines) == 0 {
		return fmt.Errorf("ovs-vswitchd has not opened it: see %s", path)
	}
	hint, text := "see "+path, strings.Join(lines, "; ")
	if strings.Contains(text, "datapath of type system") {
		hint = "is the kernel module openvswitch loaded? " + hint
	}
	return fmt.Errorf("ovs-vswitchd has not opened it: %s: %s", text, hint)
}

// awaitComplaints waits until a log has complaints about one of some names, or ctx ends. It does not wait if the log
// is missing or cannot be watched.
func awaitComplaints(ctx context.Context, path string, of []string) []string {
	var changes <-chan fsnotify.Event
	w, err := fsnotify.NewWatcher()
	if err == nil {
		defer w.Close()
		err, changes = w.Add(path), w.Events
	}
	for {
		lines, failed := complaints(path, of)
		if failed != nil || err != nil || len(lines) > 0 {
			return lines
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return nil
		}
	}
}

// complaints reads the last WARN or ERR line with one of some names in a log, and the lines just before it, without
// times and numbers.
func complaints(path string, of []string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > logTail {
		if _, err := f.Seek(-logTail, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	var recent, found []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// TIME|NUMBER|MODULE|LEVEL|TEXT, see ovs-appctl(8)
		fields := strings.SplitN(lines.Text(), "|", 5)
		if len(fields) < 5 || fields[3] != "WARN" && fields[3] != "ERR" {
			continue
		}
		recent = append(recent, fields[4])
		recent = recent[max(0, len(recent)-reasonLines):]
		for _, name := range of {
			if strings.Contains(fields[4], name) {
				found = append([]string(nil), recent...)
			}
		}
	}
	return found, nil
}
