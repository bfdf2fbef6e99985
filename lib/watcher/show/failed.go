package show

import (
	"errors"
	"fmt"
	"io"
	"time"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/reconcile"
	"ovn-k8s/lib/watcher/failures"
)

// Failed prints the units that will succeed without intervention, then all others.
func Failed(t io.Writer, all []reconcile.Failed[nb.Unit]) {
	var pending, failing []reconcile.Failed[nb.Unit]
	for _, f := range all {
		if errors.Is(f.Err, failures.ErrPending) {
			pending = append(pending, f)
		} else {
			failing = append(failing, f)
		}
	}
	print := func(name string, list []reconcile.Failed[nb.Unit]) {
		fmt.Fprintf(t, "units %s\t%d\n", name, len(list))
		for _, f := range list {
			fmt.Fprintf(t, "  %s\t%v (for %s, tries %d, next in %s)\n", f.Key, f.Err,
				time.Since(f.Since).Round(time.Second), f.Tries, max(0, time.Until(f.Next)).Round(time.Second))
		}
	}
	print("pending", pending)
	print("failing", failing)
}
