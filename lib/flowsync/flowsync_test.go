package flowsync_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/flow"
	"ovn-k8s/lib/flowsync"
)

const cookie = 7

func ours(f flow.Flow) bool { return f.Cookie == cookie }

// A table is a switch behaving as in OpenFlow 1.4, section 6.4.
type table struct {
	flows   map[flow.Key]flow.Flow
	bundles int
}

func (t *table) Dump(context.Context) ([]flow.Flow, error) {
	var out []flow.Flow
	for _, f := range t.flows {
		out = append(out, f)
	}
	return out, nil
}

func (t *table) Apply(_ context.Context, mods []flow.Mod) error {
	t.bundles++
	for _, m := range mods {
		switch k := m.Flow.Key(); {
		case !m.Delete:
			t.flows[k] = m.Flow
		case t.flows[k].Cookie == m.Flow.Cookie:
			delete(t.flows, k)
		}
	}
	return nil
}

func parse(t *testing.T, lines string) []flow.Flow {
	t.Helper()
	var out []flow.Flow
	for l := range strings.Lines(strings.TrimSpace(lines)) {
		f, err := flow.Parse(strings.TrimSpace(l))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f)
	}
	return out
}

func TestOnlyWhatDiffersIsChanged(t *testing.T) {
	have := parse(t, `cookie=7,priority=1,ip actions=drop
		cookie=7,priority=2,ip actions=drop
		cookie=7,priority=3,ip actions=drop
		cookie=0,priority=4,ip actions=drop
		cookie=9,priority=5,ip actions=drop`)
	want := parse(t, `cookie=7,priority=1,ip actions=drop
		cookie=7,priority=2,ip actions=NORMAL
		cookie=7,priority=4,ip actions=drop
		cookie=7,priority=6,ip actions=drop`)
	var got []string
	for _, m := range flowsync.Diff(have, want, ours) {
		got = append(got, m.String())
	}
	if diff := cmp.Diff([]string{
		"add cookie=0x7,table=0,priority=6,ip,actions=drop",
		"add cookie=0x7,table=0,priority=4,ip,actions=drop",
		"add cookie=0x7,table=0,priority=2,ip,actions=NORMAL",
		"delete_strict cookie=0x7/-1,table=0,priority=3,ip",
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever the state before, Sync leaves the wanted flows, keeps foreign ones, and a second Sync does nothing.
func TestThePathDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	sw := &table{flows: map[flow.Key]flow.Flow{}}
	foreign := flow.Flow{Cookie: 1, Priority: 99, Match: "arp", Actions: "NORMAL"}
	sw.flows[foreign.Key()] = foreign
	for range 300 {
		want := map[flow.Key]flow.Flow{}
		for range r.IntN(20) {
			f := flow.Flow{Cookie: cookie, Priority: r.IntN(5), Match: fmt.Sprintf("tcp,in_port=%d", r.IntN(4)), Actions: fmt.Sprintf("output:%d", r.IntN(3))}
			want[f.Key()] = f
		}
		var list []flow.Flow
		for _, f := range want {
			list = append(list, f)
		}
		before := sw.bundles
		if _, err := flowsync.Sync(t.Context(), sw, list, ours); err != nil {
			t.Fatal(err)
		}
		if mods, err := flowsync.Sync(t.Context(), sw, slices.Clone(list), ours); err != nil || mods != nil || sw.bundles > before+1 {
			t.Fatalf("again: %v, %v", mods, err)
		}
		want[foreign.Key()] = foreign
		if diff := cmp.Diff(want, sw.flows); diff != "" {
			t.Fatal(diff)
		}
	}
}
