package link

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ovn-k8s/lib/names"
)

// Group is the interface group of the host ends of our veth pairs.
const Group = names.HostVethGroup

// A Veth is a pair of virtual Ethernet interfaces between this namespace, the host's, and a container's.
type Veth struct {
	Host      string           // name of the host end
	Container string           // name of the container's end
	MAC       net.HardwareAddr // of the container's end
	MTU       int              // of both ends
	Alias     string           // of the host end: identifies its owner, up to 255 bytes
}

// ErrExists means that the name belongs to a foreign interface.
var ErrExists = errors.New("the interface exists already")

// Ensure creates the pair with its far end in ns. An existing pair is kept; the host end of another one of our pairs
// with the same name is replaced. The host end is up and isolated: see quiet. The error wraps ErrExists if one of the
// names is in use.
func (v Veth) Ensure(ns *Namespace) error {
	if err := v.clear(ns); err != nil {
		return err
	}
	l, err := find(v.Host)
	if err != nil {
		return err
	}
	if l == nil {
		if err := v.create(ns); err != nil {
			return err
		}
	}
	return v.finish()
}

// clear removes another pair of ours with the name of the host end.
func (v Veth) clear(ns *Namespace) error {
	host, err := find(v.Host)
	if err != nil {
		return err
	}
	var far netlink.Link
	err = ns.Do(func() (err error) {
		far, err = find(v.Container)
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case host != nil && far != nil && joined(host, far):
		return nil
	case far != nil:
		return fmt.Errorf("%s in the container: %w", v.Container, ErrExists)
	case host == nil:
		return nil
	case host.Attrs().Group != Group:
		return fmt.Errorf("%s on the host: %w", v.Host, ErrExists)
	}
	return Delete(v.Host)
}

// joined reports whether two interfaces of different namespaces are the ends of one of our pairs.
func joined(host, far netlink.Link) bool {
	h, f := host.Attrs(), far.Attrs()
	return host.Type() == "veth" && far.Type() == "veth" && h.Group == Group && h.ParentIndex == f.Index && f.ParentIndex == h.Index
}

// create creates both ends with one message, the far one directly inside ns: its name cannot collide with one on the
// host, and the pair is never incomplete.
func (v Veth) create(ns *Namespace) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.Group = v.Host, v.MTU, Group
	pair := netlink.NewVeth(attrs)
	pair.PeerName, pair.PeerHardwareAddr, pair.PeerMTU = v.Container, v.MAC, uint32(v.MTU)
	pair.PeerNamespace = netlink.NsFd(ns.handle)
	if err := netlink.LinkAdd(pair); errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%s on the host: %w", v.Host, ErrExists)
	} else if err != nil {
		return fmt.Errorf("creating the veth pair %s and %s: %w", v.Host, v.Container, err)
	}
	return nil
}

// finish configures a pair after its creation.
func (v Veth) finish() error {
	host, err := find(v.Host)
	if err != nil {
		return err
	}
	if host == nil {
		return fmt.Errorf("%s disappeared", v.Host)
	}
	is := host.Attrs()
	if is.Alias != v.Alias {
		if err := netlink.LinkSetAlias(host, v.Alias); err != nil {
			return fmt.Errorf("setting the alias of %s: %w", v.Host, err)
		}
	}
	if is.MTU != v.MTU {
		if err := netlink.LinkSetMTU(host, v.MTU); err != nil {
			return fmt.Errorf("setting the MTU of %s to %d: %w", v.Host, v.MTU, err)
		}
	}
	if err := quiet(host); err != nil {
		return fmt.Errorf("closing %s to the host: %w", v.Host, err)
	}
	return SetUp(v.Host)
}

// quiet isolates the host from the container at the host end. With the kernel's datapath, Open vSwitch takes all
// frames. The userspace datapath only taps them: otherwise the host would answer ARP for all its addresses there,
// accept router advertisements from pods (CVE-2020-10749), and accept packets bypassing OVN's rules. This must happen
// before the interface is up.
func quiet(host netlink.Link) error {
	name := host.Attrs().Name
	var changes []Change
	for _, kv := range [][2]string{
		{"net/ipv6/conf/" + name + "/disable_ipv6", "1"},
		// strict: no route uses this interface, so all packets are dropped
		{"net/ipv4/conf/" + name + "/rp_filter", "1"},
	} {
		c, err := planSysctl(kv[0], kv[1])
		if err != nil {
			return err
		}
		changes = append(changes, c...)
	}
	if err := apply(changes); err != nil {
		return err
	}
	if host.Attrs().RawFlags&unix.IFF_NOARP != 0 {
		return nil
	}
	return netlink.LinkSetARPOff(host)
}

// Joined reports whether the pair exists with its far end in ns.
func (v Veth) Joined(ns *Namespace) (bool, error) {
	host, err := find(v.Host)
	if host == nil || err != nil {
		return false, err
	}
	found := false
	err = ns.Do(func() error {
		far, err := find(v.Container)
		found = far != nil && joined(host, far)
		return err
	})
	return found, err
}

// HostEnds returns the aliases of the host ends of all our veth pairs, by name. The alias is empty if the creating
// process was killed.
func HostEnds() (map[string]string, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	ends := map[string]string{}
	for _, l := range links {
		if a := l.Attrs(); a.Group == Group && l.Type() == "veth" {
			ends[a.Name] = a.Alias
		}
	}
	return ends, nil
}

// LargerHostEnds returns the names of the host ends of our veth pairs with an MTU above mtu bytes.
func LargerHostEnds(mtu int) ([]string, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	var ends []string
	for _, l := range links {
		if a := l.Attrs(); a.Group == Group && l.Type() == "veth" && a.MTU > mtu {
			ends = append(ends, a.Name)
		}
	}
	return ends, nil
}

// HostEnd returns the alias of the host end with this name, and whether it is one of ours.
func HostEnd(name string) (alias string, ok bool, err error) {
	l, err := find(name)
	if l == nil || err != nil || l.Attrs().Group != Group || l.Type() != "veth" {
		return "", false, err
	}
	return l.Attrs().Alias, true, nil
}

// DisableTxChecksum turns transmit checksum offloads of an interface off, as "ethtool -K NAME tx off" does. The userspace
// datapath of Open vSwitch forwards frames unchanged, and receivers drop those without a checksum.
func DisableTxChecksum(name string) error {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("opening ethtool's socket: %w", err)
	}
	defer tool.Close()
	features, err := tool.Features(name)
	if err != nil {
		return fmt.Errorf("reading the features of %s: %w", name, err)
	}
	off := map[string]bool{}
	for feature, on := range features {
		if on && strings.HasPrefix(feature, "tx-checksum-") {
			off[feature] = false
		}
	}
	if len(off) == 0 {
		return nil
	}
	if err := tool.Change(name, off); err != nil {
		return fmt.Errorf("turning the transmit checksum offload of %s off: %w", name, err)
	}
	return nil
}
