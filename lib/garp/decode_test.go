package garp

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/net/bpf"

	"ovn-k8s/test/hostile"
)

// answers are frames with the address of their sender.
func answers(t testing.TB) map[netip.Addr][]byte {
	mac := []byte{2, 0, 0, 0, 0, 1}
	all := map[netip.Addr][]byte{}
	for _, text := range []string{"10.0.0.1", "fe80::1"} {
		a := netip.MustParseAddr(text)
		frame, err := Announcement(mac, a)
		if err != nil {
			t.Fatal(err)
		}
		if a.Is4() {
			frame[21] = 2 // a reply
		}
		all[a] = frame
	}
	return all
}

func TestDecoderReadsAnswers(t *testing.T) {
	d := newDecoder()
	for want, frame := range answers(t) {
		if who, ok := d.answer(frame); !ok || who != want {
			t.Errorf("%v: %v, %v", want, who, ok)
		}
		for n := range frame[:54] {
			if _, ok := d.answer(frame[:n]); ok && n < 42 {
				t.Errorf("%v: %d bytes are an answer", want, n)
			}
		}
	}
}

// L10: the sFlow decoder of gopacket 1.1.19 allocates 16 GiB for a datagram of 158 bytes. Random frames and frames of
// every layer type cost next to nothing.
func TestHostileFramesCostNothing(t *testing.T) {
	d := newDecoder()
	frames := hostile.Frames(10_000, 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, frame := range frames {
		if _, ok := d.answer(frame); ok && frame[12] != 0x08 && frame[12] != 0x86 {
			t.Errorf("an answer of EtherType %x", frame[12:14])
		}
	}
	runtime.ReadMemStats(&after)
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 20<<20 {
		t.Errorf("%d bytes for %d frames", spent, len(frames))
	}
}

// L10: the kernel passes answers only.
func TestFiltersPassAnswersOnly(t *testing.T) {
	d := newDecoder()
	for _, p := range []protocol{arpReplies, advertisements} {
		vm, err := bpf.NewVM(withoutExtension(p.filter))
		if err != nil {
			t.Fatal(err)
		}
		passed := 0
		for want, frame := range answers(t) {
			n, err := vm.Run(frame)
			if err != nil {
				t.Fatal(err)
			}
			if want.Is4() != (p.etherType == arpReplies.etherType) {
				continue
			}
			if n == 0 {
				t.Errorf("the answer of %v is dropped", want)
			}
		}
		frames := hostile.Frames(10_000, 2)
		for _, frame := range frames {
			n, err := vm.Run(frame)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				continue
			}
			passed++
			_, _ = d.answer(frame[:min(n, len(frame))])
		}
		if passed > len(frames)/10 {
			t.Errorf("%d of %d hostile frames pass", passed, len(frames))
		}
	}
}

// withoutExtension replaces the packet type, known only to the kernel, by 0: to this host.
func withoutExtension(filter []bpf.Instruction) []bpf.Instruction {
	return append([]bpf.Instruction{bpf.LoadConstant{Dst: bpf.RegA}}, filter[1:]...)
}

// L10
func FuzzAnswer(f *testing.F) {
	for _, frame := range hostile.Frames(500, 3) {
		f.Add(frame)
	}
	for _, frame := range answers(f) {
		f.Add(frame)
	}
	f.Add(hostile.SFlow())
	d := newDecoder()
	f.Fuzz(func(t *testing.T, frame []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		who, ok := d.answer(frame)
		runtime.ReadMemStats(&after)
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 1<<20+64*uint64(len(frame)) {
			t.Fatalf("%d bytes for a frame of %d", spent, len(frame))
		}
		if ok && !who.IsValid() {
			t.Fatal(fmt.Sprint("an answer of nobody: ", who))
		}
	})
}
