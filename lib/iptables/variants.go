package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	goiptables "github.com/coreos/go-iptables/iptables"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/platform"
)

// New finds the programs for the family of an address, of the variant that this host prefers.
func New(family netip.Addr) (*Firewall, error) { return findSoon(family, "") }

// Other finds the programs of the other variant: iptables-legacy or iptables-nft. Each has rules of its own, and packets
// have to pass both.
func (f *Firewall) Other() (*Firewall, error) {
	if f.announces {
		return findSoon(f.Family(), "-legacy")
	}
	return findSoon(f.Family(), "-nft")
}

// findTimeout bounds the time to find programs: they only print their version.
const findTimeout = 10 * time.Second

func findSoon(family netip.Addr, variant string) (*Firewall, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), findTimeout, fmt.Errorf("killed, because it was not done within %v", findTimeout))
	defer cancel()
	return find(ctx, family, variant)
}

func find(ctx context.Context, family netip.Addr, variant string) (*Firewall, error) {
	name, protocol := "iptables"+variant, goiptables.ProtocolIPv4
	if !ipnet.SameFamily(family, netip.IPv4Unspecified()) {
		name, protocol = "ip6tables"+variant, goiptables.ProtocolIPv6
	}
	var f Firewall
	version, err := run(ctx, "", name, "--version") // first, since go-iptables asks for it without a timeout
	if ctx.Err() != nil {
		return nil, fmt.Errorf("looking for iptables: %w", err)
	}
	if err == nil {
		f.tool, err = goiptables.New(goiptables.IPFamily(protocol), goiptables.Path(name), goiptables.Timeout(wait))
	}
	if err == nil {
		f.save, err = exec.LookPath(name + "-save")
	}
	if err == nil {
		f.restore, err = exec.LookPath(name + "-restore")
	}
	if err != nil {
		return nil, fmt.Errorf("looking for iptables: %w: %s", err, platform.Host(os.ReadFile).Remedy(platform.IPTables))
	}
	f.announces = strings.Contains(version, "nf_tables")
	return &f, nil
}

// Gone reports whether the programs are not there any more.
func (f *Firewall) Gone() bool {
	for _, program := range []string{f.save, f.restore} {
		if _, err := os.Stat(program); err != nil {
			return true
		}
	}
	return false
}

// has reports whether the kernel has a table. To read one of iptables-legacy would create it.
func (f *Firewall) has(table string) bool {
	if f.announces {
		return true
	}
	file := map[bool]string{false: "ip_tables_names", true: "ip6_tables_names"}[f.Family().Is6()]
	names, err := os.ReadFile("/proc/thread-self/net/" + file)
	return err == nil && slices.Contains(strings.Fields(string(names)), table)
}

// Family is an address of the family, unspecified.
func (f *Firewall) Family() netip.Addr {
	if f.tool.Proto() == goiptables.ProtocolIPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}
