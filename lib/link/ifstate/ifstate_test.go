package ifstate

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// address creates a record of an IPv4 address with a label.
func address(label string, flags, valid, preferred uint32) Record {
	r := Record{Kind: Address, Header: []byte{unix.AF_INET, 24, byte(flags), 0, 0, 0, 0, 0}}
	r.set(unix.IFA_LOCAL, netip.MustParseAddr("10.0.0.5").AsSlice())
	r.set(unix.IFA_LABEL, zeroEnded(label))
	r.set(unix.IFA_FLAGS, native.AppendUint32(nil, flags))
	r.set(unix.IFA_CACHEINFO, native.AppendUint32(native.AppendUint32(nil, preferred), valid))
	return r
}

func TestLabelsFollowTheInterface(t *testing.T) {
	for label, want := range map[string]string{
		"eth0": "breth0", "eth0:1": "breth0:1", "eth0:12345678": "breth0:12345678", "eth01": "eth01", "other": "other",
		"eth0:123456789": "eth0:123456789", // too long for the other
	} {
		there := address(label, 0, forever, forever).Named("eth0", "breth0")
		if got := text(there.attr(unix.IFA_LABEL)); got != want {
			t.Errorf("%s: %s, want %s", label, got, want)
		}
		if back := text(there.Named("breth0", "eth0").attr(unix.IFA_LABEL)); back != label {
			t.Errorf("%s came back as %s", label, back)
		}
	}
}

func TestKeysLeaveOutWhatTheKernelCounts(t *testing.T) {
	a := address("eth0", unix.IFA_F_PERMANENT, 3000, 2000)
	for _, same := range []Record{address("eth0", unix.IFA_F_SECONDARY, 2999, 1999), a.clone()} {
		if a.Key() != same.Key() {
			t.Errorf("%s\n%s", a.Key(), same.Key())
		}
	}
	for _, other := range []Record{
		address("eth0:1", 0, 3000, 2000), address("eth0", 0, forever, 2000), address("eth0", unix.IFA_F_NOPREFIXROUTE, 3000, 2000),
	} {
		if a.Key() == other.Key() {
			t.Errorf("%s is not the same as %s", a.Key(), other.Key())
		}
	}
}

func TestLifetimesGoOnWhileARecordIsKept(t *testing.T) {
	for _, c := range []struct{ is, age, want uint32 }{{forever, 60, forever}, {0, 60, 0}, {3000, 60, 2940}, {30, 60, 1}} {
		r := outgoing(address("eth0", 0, c.is, c.is), Interface{"eth0", 7}, c.age)
		if got := native.Uint32(r.attr(unix.IFA_CACHEINFO)[4:]); got != c.want {
			t.Errorf("%d after %d seconds: %d, want %d", c.is, c.age, got, c.want)
		}
	}
}

// Records from a journal are untrusted input.
func FuzzRecordsDoNotPanic(f *testing.F) {
	f.Add(string(Route), make([]byte, sizeofRoute), []byte{8, 0, 4, 0, 1, 0, 0, 0, 16, 0, 9, 0, 12, 0, 0, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, kind string, header, attrs []byte) {
		r := Record{Kind: Kind(kind), Header: append(header, make([]byte, sizeofRoute)...), Attrs: split(attrs)}
		r.describe()
		n := r.Named("eth0", "breth0")
		if n.Key() == "" || strings.Contains(n.Text, "\x00") && !strings.Contains(r.Text, "\x00") {
			t.Error(n.Text)
		}
		_, _ = n.Way()
		_ = outgoing(n, Interface{"eth0", 7}, 5)
		_, _ = n.Gateways(), n.Lasts()
	})
}

// A family missing from the kernel has no entries: AF_APPLETALK is missing from this one.
func TestFamiliesThatTheKernelLacksAreEmpty(t *testing.T) {
	for name, list := range map[string]func() ([]Record, error){
		"addresses": func() ([]Record, error) {
			return dump(unix.RTM_GETADDR, unix.RTM_NEWADDR, Address, header(sizeofAddress, unix.AF_APPLETALK), sizeofAddress)
		},
		"routes": func() ([]Record, error) {
			return dump(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, Route, header(sizeofRoute, unix.AF_APPLETALK), sizeofRoute)
		},
		"neighbours": func() ([]Record, error) {
			return dump(unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, Neighbour, header(sizeofNeigh, unix.AF_APPLETALK), sizeofNeigh)
		},
		"rules": func() ([]Record, error) {
			return dump(unix.RTM_GETRULE, unix.RTM_NEWRULE, Rule, header(sizeofRule, unix.AF_APPLETALK), sizeofRule)
		},
	} {
		if all, err := list(); err != nil || len(all) > 0 {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
}

// A lease is known by its lifetime. It is renewed when a program has set this after the address was added.
func TestLease(t *testing.T) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	ticks := uint32(now.Nano() / 1e7)
	leased := func(family, bits byte, valid, added, set uint32) Record {
		r := address("eth0", 0, valid, valid)
		r.Header[0], r.Header[1] = family, bits
		if family == unix.AF_INET6 {
			r.set(unix.IFA_LOCAL, nil)
			r.set(unix.IFA_ADDRESS, netip.MustParseAddr("2001:db8::7").AsSlice())
		}
		r.set(unix.IFA_CACHEINFO, native.AppendUint32(native.AppendUint32(r.attr(unix.IFA_CACHEINFO), added), set))
		return r
	}
	const age = 10 * 100 // in hundredths of a second
	for name, c := range map[string]struct {
		is      Record
		ok      bool
		renewed bool
	}{
		"added":                     {leased(unix.AF_INET, 24, 60, ticks-age, ticks-age), true, false},
		"added in two steps":        {leased(unix.AF_INET6, 128, 60, ticks-age-2, ticks-age), true, false},
		"renewed":                   {leased(unix.AF_INET, 24, 60, ticks-2*age, ticks-age), true, true},
		"infinite":                  {leased(unix.AF_INET, 24, forever, ticks-age, ticks-age), false, false},
		"of a router advertisement": {leased(unix.AF_INET6, 64, 60, ticks-age, ticks-age), false, false},
		"of an old kernel":          {address("eth0", 0, 60, 60), false, false},
	} {
		l, ok := c.is.Lease()
		if ok != c.ok || l.Renewed != c.renewed {
			t.Errorf("%s: got %v, %v", name, l, ok)
		}
		if ok && (l.Left.Seconds() != 60 || l.Age.Seconds() < 10) {
			t.Errorf("%s: got %v", name, l)
		}
	}
}
