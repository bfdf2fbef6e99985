package firewall

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netns"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/localgateway"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/test/namespace"
)

// countProcesses returns a function for the programs of packet filters started since its last call.
func countProcesses(t *testing.T) (started func() []string) {
	t.Helper()
	dir := t.TempDir()
	list := filepath.Join(dir, "started")
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, variant := range []string{"", "-nft", "-legacy"} {
			for _, what := range []string{"", "-save", "-restore"} {
				wrap(t, dir, list, family+variant+what)
			}
		}
	}
	wrap(t, dir, list, "nft")
	t.Setenv("PATH", dir)
	return func() []string {
		t.Helper()
		text, err := os.ReadFile(list)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.WriteFile(list, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(text))
	}
}

// wrap makes a script of a program's name. It writes the name to a list.
func wrap(t *testing.T, dir, list, program string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, program), fmt.Appendf(nil, "#!/bin/sh\necho %s >>%s\nexec %s \"$@\"\n", program, list, path), 0o755); err != nil {
		t.Fatal(err)
	}
}

// withEndpointsOf is withEndpoints for another number in each family.
func withEndpointsOf(s *service.Resolved, four, six int) *service.Resolved {
	other, families := *s, ipnet.Families()
	other.Endpoints = []service.Endpoints{slices.Concat(withEndpoints(s, four, families[:1]).Endpoints[0], withEndpoints(s, six, families[1:]).Endpoints[0])}
	return &other
}

func reads(f *filled) (n []int) {
	for _, f := range f.firewalls {
		n = append(n, f.found.table.Reads())
	}
	return n
}

// Rules of both families in nftables: a change of one family's leads neither to a process, nor to a comparison with the whole
// table of any. A change of another program does, between changes of ours, too.
func TestAChangeCostsTheOtherFamilyNothing(t *testing.T) {
	namespace.Enter(t)
	families, started := ipnet.Families(), countProcesses(t)
	f, services := newFilled(config.NFTables, families[:]), many(8, 3, families[:])
	six := localgateway.Link{Router: netip.MustParsePrefix("fd00:33::2/64"), Pods: []netip.Prefix{netip.MustParsePrefix("fd00:10::/64")}}
	sync := func(four, sixth int) (changes int) {
		t.Helper()
		services[0] = withEndpointsOf(services[0], four, sixth)
		changes = f.sync(t, services)
		for i, link := range []Rules{gateway, six} {
			if _, err := f.firewalls[i].Sync(t.Context(), Local, link); err != nil {
				t.Fatal(err)
			}
		}
		return changes
	}
	sync(3, 3)
	if before := started(); !slices.Contains(before, "nft") || !slices.Contains(before, "ip6tables-save") {
		t.Fatalf("not counted: %q", before)
	}
	quiet := func(what string, four, six int) {
		t.Helper()
		before := reads(f)
		changes := sync(four, six)
		if after, run := reads(f), started(); changes == 0 || !slices.Equal(before, after) || len(run) > 0 {
			t.Errorf("%s: %d changes, tables read %v times, before %v, and programs %q", what, changes, after, before, run)
		}
	}
	quiet("IPv4", 2, 3)
	quiet("IPv4 again", 4, 3)
	quiet("IPv6", 4, 2)
	quiet("both", 5, 5)

	if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before := reads(f)
	if changes, after, run := sync(4, 5), reads(f), started(); changes < 50 || after[0] <= before[0] || after[1] <= before[1] || !slices.Contains(run, "iptables-save") || !slices.Contains(run, "ip6tables-save") {
		t.Errorf("after a flush: %d changes, tables read %v times, before %v, and programs %q", changes, after, before, run)
	}
	for i, link := range []Rules{gateway, six} {
		if left, err := New(config.NFTables, families[i]).Plan(t.Context(), Local, link); err != nil || len(left) > 0 {
			t.Errorf("after a flush: not as wanted: %q, %v", left, err)
		}
	}
	sync(4, 5)
	started()
	quiet("IPv4 later", 2, 5)
}

// Followers of other programs' changes are not told ours.
func TestOnlyOthersAreFollowed(t *testing.T) {
	space := namespace.Enter(t)
	families := ipnet.Families()
	f, services := newFilled(config.NFTables, families[:]), many(8, 3, families[:])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told, ended := make(chan bool, 1000), make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		err := netns.Set(space)
		if err == nil {
			err = f.firewalls[0].FollowOthers(ctx, func() { told <- true })
		}
		ended <- err
	}()
	<-told // it follows
	for i := range 20 {
		services[0] = withEndpointsOf(services[0], 3+i%2, 3+i%3)
		if changes := f.sync(t, services); changes == 0 {
			t.Error("no changes")
		}
		if i%5 == 0 { // by nft, too
			for _, link := range []Rules{gateway, nil} {
				if _, err := f.firewalls[0].Sync(t.Context(), Local, link); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if n := len(told); n > 0 {
		t.Errorf("told %d times of our changes", n)
	}
	if out, err := exec.Command("nft", "add", "table", "ip6", "stranger").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	<-told
	cancel()
	if err := <-ended; err != nil || len(told) > 0 {
		t.Errorf("told %d more times, %v", len(told), err)
	}
}
