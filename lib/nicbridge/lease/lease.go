// Package lease finds addresses of a bridge from DHCP that no client renews, as after the move of a NIC whose DHCP client stays
// there: the NIC's frames go to the bridge. It changes nothing.
package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/nicbridge/managers"
	"ovn-k8s/lib/platform"
)

const (
	// lookAgain is the time between two searches for a client: they read the arguments of all processes.
	lookAgain = 15 * time.Second
	// tellAgain is the time between two lines about one lease. Kubernetes keeps an Event for an hour.
	tellAgain = 30 * time.Minute
)

// Leases follows the leases of bridges. It belongs to one goroutine.
type Leases struct {
	told   map[subject]line
	looked time.Time
	client client // as found then
}

// A subject is the lease of an address.
type subject struct {
	bridge  string
	address netip.Prefix
}

// A line is the last one about a lease.
type line struct {
	at   time.Time
	left time.Duration
}

// A client is a DHCP client of a NIC. Zero: there is none.
type client struct{ Name, NIC string }

// Check looks at the addresses of a bridge with these NICs as ports. It calls warn for each lease that nobody renews, and again
// when half of the rest has passed, or half an hour; and renewed when that is over.
func (l *Leases) Check(bridge string, nics []string, warn, renewed func(text string)) error {
	i, err := ifstate.Find(bridge)
	if errors.Is(err, ifstate.ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	records, err := ifstate.Addresses(i)
	if err != nil {
		return err
	}
	told := map[subject]line{} // of addresses that are still there
	for of, last := range l.told {
		if of.bridge != bridge {
			told[of] = last
		}
	}
	for _, r := range records {
		lease, ok := r.Lease()
		if !ok {
			continue
		}
		address := r.Prefix()
		last, known := l.told[subject{bridge, address}]
		why := l.unrenewed(lease, bridge, nics)
		switch {
		case why == "" && known:
			renewed(fmt.Sprintf("address %s of bridge %s: its DHCP lease is renewed", address, bridge))
		case why == "":
		case !known || time.Since(last.at) >= tellAgain || lease.Left <= last.left/2:
			warn(fmt.Sprintf(`address %s of bridge %s ends in %d s with its DHCP lease, and %s: have the DHCP client work on %s, as docs/ovnkube.md says, "DHCP"`,
				address, bridge, int(lease.Left.Seconds()), why, bridge))
			last = line{time.Now(), lease.Left}
			fallthrough
		default:
			told[subject{bridge, address}] = last
		}
	}
	l.told = told
	return nil
}

// unrenewed says why nobody renews a lease, "" if somebody may.
func (l *Leases) unrenewed(lease ifstate.Lease, bridge string, nics []string) string {
	// A client asks for more after a half and again after 7/8 of the lease, unless the server says otherwise (RFC 2131, section 4.4.5).
	// Since a move, the kernel counts the rest of the lease alone: then a client asks earlier.
	if lease.Age >= 3*lease.Left {
		return fmt.Sprintf("nobody has renewed it for %d s", int(lease.Age.Seconds()))
	}
	if lease.Renewed {
		return ""
	}
	if time.Since(l.looked) >= lookAgain {
		l.client, l.looked = find(nics, bridge), time.Now()
	}
	if l.client.Name == "" {
		return ""
	}
	return fmt.Sprintf("nobody renews it, since the DHCP client %s works on %s", l.client.Name, l.client.NIC)
}

// find returns a DHCP client of the NICs.
func find(nics []string, bridge string) client {
	for _, name := range nics {
		nic, err := ifstate.Find(name)
		if err != nil {
			continue
		}
		index := fmt.Sprint(nic.Index)
		leases := filepath.Join(filepath.Dir(platform.Networkd.Links), "leases") // of DHCP for IPv4
		if _, err := os.Stat(filepath.Join(leases, index)); err == nil {
			return client{platform.Networkd.Name, name}
		}
		if networkManager(index, name, bridge) {
			return client{platform.NetworkManager.Name, name}
		}
		if found := managers.Clients(name, bridge); len(found) > 0 {
			return client{found[0].Program, name}
		}
	}
	return client{}
}

// networkManager reports whether NetworkManager has a lease of its active connection of a NIC. The connection of a port of Open
// vSwitch has none, but keeps the file of a lease that it had before: then that of the bridge is newer.
func networkManager(index, nic, bridge string) bool {
	state, err := os.ReadFile(filepath.Join(platform.NetworkManager.Links, index))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(state)) {
		if uuid, ok := strings.CutPrefix(strings.TrimSpace(line), "connection-uuid="); ok && uuid != "" {
			last := written("*-" + uuid + "-" + nic)
			return !last.IsZero() && !written("*-"+bridge).After(last)
		}
	}
	return false
}

// written is the time when NetworkManager wrote the last lease with a name. It writes it at each renewal.
func written(pattern string) time.Time {
	return managers.Written("/var/lib/NetworkManager/" + pattern + ".lease")
}
