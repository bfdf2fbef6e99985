package confdb_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ovn-k8s/lib/ovsdb/vswitch/confdb"
)

// H17: the log of a host without the kernel module openvswitch.
func TestTheReasonIsInTheLog(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("OVS_LOGDIR", dir)
	const log = `2026-11-22T21:53:18.400Z|00008|dpif|WARN|something of before
2026-11-22T21:53:18.544Z|00008|dpif|WARN|failed to enumerate system datapaths: No such file or directory
2026-11-22T21:53:18.544Z|00009|dpif|WARN|failed to create datapath ovs-system: No such file or directory
2026-11-22T21:53:18.544Z|00010|ofproto_dpif|ERR|failed to open datapath of type system: No such file or directory
2026-11-22T21:53:18.544Z|00011|ofproto|ERR|failed to open datapath br-int: No such file or directory
2026-11-22T21:53:18.544Z|00012|bridge|ERR|failed to create bridge br-int: No such file or directory
2026-11-22T21:53:19.000Z|00013|bridge|WARN|could not open network device eth7 (No such device)
`
	path := filepath.Join(dir, "ovs-vswitchd.log")
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 100<<10)+"\n"+log), 0o644); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end() // all lines are there
	for of, want := range map[string]string{
		"br-int": "ovs-vswitchd has not opened it: failed to open datapath of type system: No such file or directory; failed to open datapath br-int: No such file or directory; " +
			"failed to create bridge br-int: No such file or directory: is the kernel module openvswitch loaded? see " + path,
		"br-other": "ovs-vswitchd has not opened it: see " + path,
	} {
		if got := confdb.Reason(ended, of).Error(); got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", of, got, want)
		}
	}
}

// H17: ovs-vswitchd's threads write its log later than the database. A line that comes after the first reading is
// the reason, too.
func TestALateLineIsTheReason(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("OVS_LOGDIR", dir)
	log, err := os.Create(filepath.Join(dir, "ovs-vswitchd.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	reasons := make(chan error, 1)
	go func() { reasons <- confdb.Reason(t.Context(), "br-int") }()
	for {
		select {
		case got := <-reasons:
			if !strings.Contains(got.Error(), "failed to create bridge br-int: No such device") {
				t.Error(got)
			}
			return
		case <-time.After(50 * time.Millisecond):
			if _, err := log.WriteString("2026-11-22T21:53:18.544Z|00012|bridge|ERR|failed to create bridge br-int: No such device\n"); err != nil {
				t.Error(err)
			}
		}
	}
}
