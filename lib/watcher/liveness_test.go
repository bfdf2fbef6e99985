package watcher

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"ovn-k8s/lib/desired"
)

// A host that answers with a refusal answers.
func TestAnswers(t *testing.T) {
	if !answers(t.Context(), []netip.Addr{netip.MustParseAddr("127.0.0.1")}) {
		t.Error("a refused connection is no answer")
	}
	l, err := net.Listen("tcp", "127.0.0.2:6081")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !answers(t.Context(), []netip.Addr{netip.MustParseAddr("127.0.0.2")}) {
		t.Error("a connection is no answer")
	}
	ctx, cancel := context.WithCancel(t.Context())
	if cancel(); answers(ctx, []netip.Addr{netip.MustParseAddr("127.0.0.1")}) {
		t.Error("nobody answers")
	}
}

func TestVerdicts(t *testing.T) {
	var verdicts []desired.Silent
	v := newVigil(func(s desired.Silent) { verdicts = append(verdicts, s) })
	hosts := map[string][]netip.Addr{"a": nil, "b": nil}
	if got := v.watch(hosts, func(name string) bool { return name == "b" }); !maps.Equal(got, desired.Silent{"b": true}) {
		t.Errorf("at first: %v", got)
	}
	turn := func(what string, a, b bool, want desired.Silent) {
		t.Helper()
		before := len(verdicts)
		v.judge(map[string]bool{"a": a, "b": b})
		switch {
		case want == nil && len(verdicts) != before:
			t.Errorf("%s: a verdict %v", what, verdicts[before:])
		case want != nil && (len(verdicts) != before+1 || !maps.Equal(verdicts[before], want)):
			t.Errorf("%s: verdicts %v, want %v", what, verdicts[before:], want)
		}
	}
	turn("one answer", true, true, nil)
	turn("two answers", true, true, desired.Silent{})
	turn("silent once", false, true, nil)
	turn("silent twice", false, true, nil)
	turn("but not three times", true, true, nil)
	turn("silent once", false, true, nil)
	turn("silent twice", false, true, nil)
	turn("silent three times", false, true, desired.Silent{"a": true})
	turn("still silent", false, true, nil)
	turn("one answer", true, true, nil)
	turn("and silent again", false, true, nil)
	turn("one answer", true, true, nil)
	turn("two answers", true, true, desired.Silent{})
	if got := v.watch(map[string][]netip.Addr{"b": nil}, nil); len(got) != 0 || len(v.hosts) != 1 {
		t.Errorf("one gone: %v %v", got, v.hosts)
	}
}

// While there are less than two gateways, nobody is asked, and nothing wakes up.
func TestNoVigilWithoutChoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVigil(func(desired.Silent) {})
		v.watch(map[string][]netip.Addr{"a": nil}, func(string) bool { return false })
		if v.ask(t.Context()) {
			t.Error("asked")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { v.run(ctx); close(done) }()
		synctest.Wait()
		v.watch(map[string][]netip.Addr{"a": nil, "b": nil}, func(name string) bool { return name == "b" })
		time.Sleep(time.Duration(aliveAfter+1) * askInterval)
		synctest.Wait()
		v.mu.Lock()
		if v.hosts["b"].silent {
			t.Error("a host of which no address is known is silent for good")
		}
		v.mu.Unlock()
		cancel()
		<-done
	})
}
