package element

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	netfilter "github.com/google/nftables"

	"ovn-k8s/lib/ruleset"
)

// Elements of every kind of set are decoded as they were encoded.
func TestDecodeIsTheInverse(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, family := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		addr := func() netip.Addr {
			b := make([]byte, family.BitLen()/8)
			for i := range b {
				b[i] = byte(r.UintN(256))
			}
			a, _ := netip.AddrFromSlice(b)
			return a
		}
		for _, key := range [][]ruleset.Field{{ruleset.Protocol, ruleset.Port}, {ruleset.Destination, ruleset.Protocol, ruleset.Port}, {ruleset.Source, ruleset.Destination, ruleset.Protocol, ruleset.Port}} {
			for _, value := range []ruleset.Value{ruleset.None, ruleset.Verdict, ruleset.AddrPort} {
				for range 200 {
					set := ruleset.Set{Key: key, Value: value}
					e := ruleset.Element{Protocol: []string{"tcp", "udp", "sctp"}[r.IntN(3)], Port: uint16(r.UintN(1 << 16)), Comment: "default/web"}
					if len(key) > 2 {
						e.Destination = addr()
					}
					if set.HasRanges() {
						e.Source = netip.PrefixFrom(addr(), r.IntN(family.BitLen()+1)).Masked()
					}
					switch value {
					case ruleset.Verdict:
						e.Verdict = "drop"
					case ruleset.AddrPort:
						e.To = netip.AddrPortFrom(addr(), uint16(r.UintN(1<<16)))
					}
					raw, err := Encode(set, e)
					if value == ruleset.Verdict { // the kernel's form of a verdict comes from the kernel
						raw.Val = []byte{8, 0, verdictCode, 0, 0, 0, 0, 0}
					}
					if got, err2 := Decode(set, family, raw); err != nil || err2 != nil || got != e {
						t.Fatalf("%+v is %+v: %v, %v", e, got, err, err2)
					}
				}
			}
		}
	}
}

// What our sets never have is an error.
func TestUnknownElements(t *testing.T) {
	byAddress := ruleset.Set{Key: []ruleset.Field{ruleset.Destination, ruleset.Protocol, ruleset.Port}, Value: ruleset.Verdict}
	bySource := ruleset.Set{Key: []ruleset.Field{ruleset.Source}}
	drop := []byte{8, 0, verdictCode, 0, 0, 0, 0, 0}
	for name, tt := range map[string]struct {
		set ruleset.Set
		raw netfilter.SetElement
	}{
		"short key":      {byAddress, netfilter.SetElement{Key: []byte{192, 0, 2, 1, 6, 0, 0, 0}, Val: drop}},
		"long key":       {byAddress, netfilter.SetElement{Key: make([]byte, 16), Val: drop}},
		"no verdict":     {byAddress, netfilter.SetElement{Key: make([]byte, 12)}},
		"bad verdict":    {byAddress, netfilter.SetElement{Key: make([]byte, 12), Val: []byte{9}}},
		"accepts":        {byAddress, netfilter.SetElement{Key: make([]byte, 12), Val: []byte{8, 0, verdictCode, 0, 0, 0, 0, 1}}},
		"not a prefix":   {bySource, netfilter.SetElement{Key: []byte{10, 0, 0, 1}, KeyEnd: []byte{10, 0, 0, 7}}},
		"empty interval": {bySource, netfilter.SetElement{Key: []byte{10, 0, 0, 1}, KeyEnd: []byte{}}},
	} {
		if e, err := Decode(tt.set, netip.IPv4Unspecified(), tt.raw); err == nil {
			t.Errorf("%s: %+v", name, e)
		}
	}
	for _, e := range []ruleset.Element{{Destination: netip.MustParseAddr("192.0.2.1"), Protocol: "icmp", Verdict: "drop"}, {Destination: netip.MustParseAddr("192.0.2.1"), Protocol: "tcp", Verdict: "accept"}} {
		if _, err := Encode(byAddress, e); err == nil {
			t.Errorf("%+v is encoded", e)
		}
	}
}

func FuzzDecode(f *testing.F) {
	set := ruleset.Set{Key: []ruleset.Field{ruleset.Source, ruleset.Destination, ruleset.Protocol, ruleset.Port}, Value: ruleset.Verdict}
	f.Add(make([]byte, 16), make([]byte, 16), []byte{8, 0, verdictCode, 0, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, key, end, value []byte) {
		_, _ = Decode(set, netip.IPv4Unspecified(), netfilter.SetElement{Key: key, KeyEnd: end, Val: value})
	})
}
