package watcher

import (
	"errors"
	"strings"
	"testing"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/reconcile"
	"ovn-k8s/lib/watcher/parts"
	"ovn-k8s/lib/watcher/show"
)

// Units that only wait for their part are no failures.
func TestPendingUnitsAreNotShownAsFailing(t *testing.T) {
	var b strings.Builder
	show.Failed(&b, []reconcile.Failed[nb.Unit]{
		{Key: "pod/default/lost", Err: errors.New("node node9 has no logical switch")},
		{Key: "service/default/web", Err: classify(parts.ErrHeld)},
	})
	pending, failing, _ := strings.Cut(b.String(), "units failing\t1\n")
	if !strings.HasPrefix(pending, "units pending\t1\n  service/default/web\twaits until ") || !strings.HasPrefix(failing, "  pod/default/lost\tnode node9 ") {
		t.Errorf("%s", b.String())
	}
}
