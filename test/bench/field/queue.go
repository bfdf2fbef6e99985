package field

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/nbsync"
)

// Empty deletes all pods, and waits until the watcher has removed their ports.
func (f *Field) Empty(ctx context.Context) error {
	if err := f.deletePods(ctx); err != nil {
		return err
	}
	db, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	sync := &nbsync.Sync{DB: db}
	err = Await(ctx, Patience, "the ports of deleted pods to go", func() error {
		owners, err := sync.Owners()
		for _, u := range owners {
			if _, ok := pod.KeyOf(u); ok {
				return fmt.Errorf("%s still has a port", u)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	return f.Settle(ctx)
}

// Compared returns when the requested comparison is over: nothing waits, and nothing is in work.
func (f *Field) Compared() error {
	for {
		q, err := f.Queue()
		if err != nil || q["events waiting"]+q["units waiting"]+q["units in work"] == 0 {
			return err
		}
	}
}

// Queue returns the counts of reconcile/show.
func (f *Field) Queue() (map[string]int, error) {
	out, err := Appctl(f.Control(), "reconcile/show")
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for l := range strings.Lines(out) {
		words := strings.Fields(l)
		if len(words) == 0 {
			continue
		}
		if n, err := strconv.Atoi(words[len(words)-1]); err == nil {
			counts[strings.Join(words[:len(words)-1], " ")] = n
		}
	}
	for _, name := range []string{"transactions", "events waiting", "units waiting", "units in work"} {
		if _, ok := counts[name]; !ok {
			return nil, fmt.Errorf("reconcile/show does not say %q: %q", name, out)
		}
	}
	return counts, nil
}
