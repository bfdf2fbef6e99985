package lease

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/test/namespace"
)

// Of a lease it counts how long ago somebody has renewed it, and whether its client is at the NIC.
func TestUnrenewed(t *testing.T) {
	networkd := client{"systemd-networkd", "eth0"}
	for name, c := range map[string]struct {
		lease  ifstate.Lease
		client client
		want   string
	}{
		"the client is at the NIC":            {ifstate.Lease{Left: time.Hour}, networkd, "nobody renews it, since the DHCP client systemd-networkd works on eth0"},
		"nobody knows the client":             {ifstate.Lease{Left: time.Hour, Age: time.Hour}, client{}, ""},
		"renewed on the bridge":               {ifstate.Lease{Left: time.Hour, Age: time.Hour, Renewed: true}, networkd, ""},
		"not renewed in time":                 {ifstate.Lease{Left: time.Minute, Age: 3 * time.Minute}, client{}, "nobody has renewed it for 180 s"},
		"not renewed again in time":           {ifstate.Lease{Left: time.Minute, Age: 3 * time.Minute, Renewed: true}, client{}, "nobody has renewed it for 180 s"},
		"a short lease that is not yet moved": {ifstate.Lease{Left: 11 * time.Second, Age: 9 * time.Second}, client{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := Leases{looked: time.Now(), client: c.client}
			if got := l.unrenewed(c.lease, "breth0", []string{"eth0"}); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// private gives the test empty directories of its own.
func private(t *testing.T, dirs ...string) {
	t.Helper()
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if err := unix.Mount("tmpfs", d, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs commands of ip(8) in the namespace of the test.
func run(t *testing.T, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", c, err, out)
		}
	}
}

// said returns the addresses named by a check.
func (l *Leases) said(t *testing.T) (warned, renewed []string) {
	t.Helper()
	add := func(list *[]string) func(string) {
		return func(text string) { *list = append(*list, strings.Fields(text)[1]) }
	}
	if err := l.Check("breth0", []string{"eth0"}, add(&warned), add(&renewed)); err != nil {
		t.Fatal(err)
	}
	return warned, renewed
}

// Leases of IPv4 and of DHCPv6 count; addresses that last, and those from router advertisements, do not.
func TestCheck(t *testing.T) {
	namespace.Enter(t)
	run(t, "link add breth0 type veth peer name eth0",
		"address add 192.0.2.7/24 dev breth0 valid_lft 3000 preferred_lft 3000",
		"address add 192.0.2.8/24 dev breth0",
		"address add 2001:db8::7/128 dev breth0 valid_lft 3000 preferred_lft 3000 nodad",
		"address add 2001:db8::8/64 dev breth0 valid_lft 3000 preferred_lft 3000 nodad",
		"address add 2001:db8::9/128 dev breth0 nodad")
	both := []string{"192.0.2.7/24", "2001:db8::7/128"}
	l := Leases{looked: time.Now().Add(time.Hour), client: client{"udhcpc", "eth0"}}
	if warned, renewed := l.said(t); !slices.Equal(warned, both) || renewed != nil {
		t.Errorf("at first: warned of %q, renewed %q", warned, renewed)
	}
	if warned, _ := l.said(t); warned != nil {
		t.Errorf("again: warned of %q", warned)
	}
	// Half of the rest has passed, and the other one is gone.
	run(t, "address del 2001:db8::7/128 dev breth0", "address del 192.0.2.7/24 dev breth0", "address add 192.0.2.7/24 dev breth0 valid_lft 1400 preferred_lft 1400")
	if warned, renewed := l.said(t); !slices.Equal(warned, both[:1]) || renewed != nil {
		t.Errorf("later: warned of %q, renewed %q", warned, renewed)
	}
	l.client = client{}
	if warned, renewed := l.said(t); warned != nil || !slices.Equal(renewed, both[:1]) {
		t.Errorf("at last: warned of %q, renewed %q", warned, renewed)
	}
	if warned, renewed := l.said(t); warned != nil || renewed != nil {
		t.Errorf("after that: warned of %q, renewed %q", warned, renewed)
	}
	run(t, "link del breth0")
	if warned, renewed := l.said(t); warned != nil || renewed != nil {
		t.Errorf("without a bridge: warned of %q, renewed %q", warned, renewed)
	}
}

// The client of a NIC is found by what systemd-networkd and NetworkManager leave in the file system, or by its process.
func TestFind(t *testing.T) {
	namespace.Enter(t)
	private(t, "/run", "/var/lib")
	run(t, "link add breth0 type veth peer name eth0")
	nic, err := ifstate.Find("eth0")
	if err != nil {
		t.Fatal(err)
	}
	index := fmt.Sprint(nic.Index)
	state := "/run/NetworkManager/devices/" + index
	at := time.Now()
	for _, c := range []struct{ what, file, text, want string }{
		{"nothing", "/run/other", "", ""},
		{"a connection without a lease, as of a port of Open vSwitch", state, "[device]\nconnection-uuid=11-22\n", ""},
		{"the lease of another NIC", "/var/lib/NetworkManager/internal-11-22-eth1.lease", "", ""},
		{"NetworkManager", "/var/lib/NetworkManager/internal-11-22-eth0.lease", "", "NetworkManager"},
		{"a newer lease of the bridge", "/var/lib/NetworkManager/internal-33-44-breth0.lease", "", ""},
		{"again NetworkManager", "/var/lib/NetworkManager/internal-11-22-eth0.lease", "", "NetworkManager"},
		{"systemd-networkd", "/run/systemd/netif/leases/" + index, "", "systemd-networkd"},
	} {
		if err := os.MkdirAll(filepath.Dir(c.file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Second)
		if err := os.Chtimes(c.file, at, at); err != nil {
			t.Fatal(err)
		}
		if got := find([]string{"missing", "eth0"}, "breth0"); got.Name != c.want || c.want != "" && got.NIC != "eth0" {
			t.Errorf("%s: got %v", c.what, got)
		}
	}
}

// A process with the arguments of a client is found, by its name.
func TestFindsAProcess(t *testing.T) {
	namespace.Enter(t)
	run(t, "link add breth0 type veth peer name eth0")
	cmd := exec.Command("sh")
	cmd.Args = []string{"/sbin/dhclient", "-c", "read line", "eth0"}
	if _, err := cmd.StdinPipe(); err != nil { // it waits for a line
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if got := find([]string{"eth0"}, "breth0"); got != (client{"dhclient", "eth0"}) {
		t.Errorf("got %v", got)
	}
}
