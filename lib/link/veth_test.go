package link

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"ovn-k8s/lib/defect"
	"ovn-k8s/test/namespace"
)

func TestVeth(t *testing.T) {
	namespace.Enter(t)
	ns := container(t)
	mac, _ := net.ParseMAC("0a:58:0a:01:01:03")
	v := Veth{Host: "0123456789abcde", Container: "eth0", MAC: mac, MTU: 1400, Alias: "ovn-k8s net c eth0"}
	if err := v.Ensure(ns); err != nil {
		t.Fatal(err)
	}
	first, _ := find(v.Host)
	if err := v.Ensure(ns); err != nil {
		t.Fatal(err)
	}
	second, _ := find(v.Host)
	if first.Attrs().Index != second.Attrs().Index {
		t.Error("a second Ensure made a new pair")
	}
	if ok, err := v.Joined(ns); !ok || err != nil {
		t.Errorf("Joined: %v, %v", ok, err)
	}
	if a := second.Attrs(); a.MTU != 1400 || a.Alias != v.Alias || a.Flags&net.FlagUp == 0 || a.Group != Group {
		t.Errorf("the host's end is %+v", a)
	}
	if ends, err := HostEnds(); err != nil || len(ends) != 1 || ends[v.Host] != v.Alias {
		t.Errorf("HostEnds: %v, %v", ends, err)
	}
	err := ns.Do(func() error {
		if err := SetUp("lo"); err != nil {
			return err
		}
		if got, err := MAC("eth0"); got != mac.String() || err != nil {
			t.Errorf("MAC: %v, %v", got, err)
		}
		s := State{Interface: "eth0", MAC: mac, MTU: 1400, Addresses: prefixes("10.1.1.3/24", "fd01::3/64"),
			Routes: []Route{DefaultRoute(netip.MustParseAddr("10.1.1.1")), DefaultRoute(netip.MustParseAddr("fd01::1"))}}
		if err := Ensure(s); err != nil {
			return err
		}
		plan, err := Plan(s)
		if len(plan) != 0 {
			t.Errorf("a second run would change %v", plan)
		}
		if err != nil {
			return err
		}
		for range 2 {
			if err := DisableTxChecksum("eth0"); err != nil {
				return err
			}
		}
		tool, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer tool.Close()
		features, err := tool.Features("eth0")
		for name, on := range features {
			if on && strings.HasPrefix(name, "tx-checksum-") {
				t.Errorf("%s is on", name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if ok, _ := Exists("eth0"); ok {
		t.Error("eth0 is outside of the container")
	}
	for range 2 {
		if err := Delete(v.Host); err != nil {
			t.Fatal(err)
		}
	}
	err = ns.Do(func() error {
		if ok, err := Exists("eth0"); ok || err != nil {
			t.Errorf("eth0 survived: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A container cannot reach the host through its veth with any packet.
func TestVethIsDeaf(t *testing.T) {
	namespace.Enter(t)
	ns := container(t)
	device(t, "uplink")
	if err := Ensure(State{Interface: "uplink", Addresses: prefixes("10.1.1.1/24", "fd01::1/64")}); err != nil {
		t.Fatal(err)
	}
	v := Veth{Host: "deaf0", Container: "eth0", MTU: 1400}
	if err := v.Ensure(ns); err != nil {
		t.Fatal(err)
	}
	host, err := find("deaf0")
	if err != nil {
		t.Fatal(err)
	}
	if addrs, err := addresses("deaf0"); err != nil || len(addrs) != 0 {
		t.Errorf("deaf0 has addresses %v, %v", addrs, err)
	}
	heard := make(chan error, 1)
	listener, err := net.ListenPacket("udp", ":4646")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		_, _, err := listener.ReadFrom(make([]byte, 10))
		heard <- err
	}()
	err = ns.Do(func() error {
		if err := Ensure(State{Interface: "eth0", Addresses: prefixes("10.1.1.9/24", "fd01::9/64")}); err != nil {
			return err
		}
		far, err := find("eth0")
		if err != nil {
			return err
		}
		for _, ip := range []string{"10.1.1.1", "fd01::1"} { // an attacker with the veth's MAC
			n := &netlink.Neigh{LinkIndex: far.Attrs().Index, IP: net.ParseIP(ip), HardwareAddr: host.Attrs().HardwareAddr, State: netlink.NUD_PERMANENT}
			if err := netlink.NeighSet(n); err != nil {
				return err
			}
			c, err := net.Dial("udp", net.JoinHostPort(ip, "4646"))
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			if _, err := c.Write([]byte("x")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// veth delivers in the sender's softirq, so delivery is complete
	_ = listener.Close()
	if err := <-heard; err == nil {
		t.Error("a packet from the container reached the host")
	}
}

func TestVethConflicts(t *testing.T) {
	namespace.Enter(t)
	one, two := container(t), container(t)
	device(t, "taken0")
	if err := (Veth{Host: "taken0", Container: "eth0", MTU: 1400}).Ensure(one); !errors.Is(err, ErrExists) {
		t.Errorf("a foreign interface on the host: %v", err)
	}
	if err := (Veth{Host: "a0", Container: "eth0", MTU: 1400}).Ensure(one); err != nil {
		t.Fatal(err)
	}
	if err := (Veth{Host: "b0", Container: "eth0", MTU: 1400}).Ensure(one); !errors.Is(err, ErrExists) {
		t.Errorf("a foreign interface in the container: %v", err)
	}
	if ok, _ := Exists("b0"); ok {
		t.Error("half of a pair is left")
	}
	// the same container ID with a new namespace: the old pair is left over
	if err := (Veth{Host: "a0", Container: "eth0", MTU: 1300}).Ensure(two); err != nil {
		t.Errorf("a pair of ours elsewhere: %v", err)
	}
	if ok, err := (Veth{Host: "a0", Container: "eth0"}).Joined(one); ok || err != nil {
		t.Errorf("the pair is still in the first namespace: %v", err)
	}
	if err := Ensure(State{Interface: "a0"}); err != nil {
		t.Error(err)
	}
}

// A panic inside of a namespace is an error for the caller, and later calls work.
func TestPanicInANamespace(t *testing.T) {
	namespace.Enter(t)
	ns := container(t)
	err := ns.Do(func() error { panic("as by a defect") })
	if d := (*defect.Error)(nil); !errors.As(err, &d) || d.Value != "as by a defect" || !strings.Contains(string(d.Stack), "veth_test.go") {
		t.Errorf("the panic became %v", err)
	}
	err = ns.Do(func() error {
		if here, err := ns.IsCurrent(); err != nil || !here {
			t.Errorf("a later call is elsewhere: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if there, err := ns.IsCurrent(); err != nil || there {
		t.Errorf("the caller is inside: %v", err)
	}
}
