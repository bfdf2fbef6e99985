package ovncontroller

import (
	"context"
	"fmt"
	"maps"

	"github.com/ovn-kubernetes/libovsdb/client"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch/confdb"
)

// A restarted ovn-controller keeps the former flows this long while it computes new ones: see ovn-controller(8).
const (
	waitBeforeClear   = "ovn-ofctrl-wait-before-clear"
	waitBeforeClearMS = "8000"
	// waitSuspended keeps the value of waitBeforeClear while that key has the value noWait, and for some seconds more.
	waitSuspended = names.SuspendedWait
	noWait        = "0"
)

// patient are settings of ovn-controller, see ovn-controller(8). They spare connections of pods when it restarts,
// and its own connections when it or a server is busy: by default it gives them up after 5 s, less than a full
// computation in a large cluster.
func patient() map[string]string {
	return map[string]string{
		waitBeforeClear:               waitBeforeClearMS,
		"ovn-remote-probe-interval":   "30000", // ms
		"ovn-openflow-probe-interval": "30",    // s
	}
}

// KeepFlows has ovn-controller keep the host's flows while it restarts, and its connections while a server is busy.
// Values set by the operator stay. It reports whether it set a value.
func (s Settings) KeepFlows(ctx context.Context) (bool, error) {
	n, err := s.changeIDs(ctx, func(ids map[string]string) (remove, insert map[string]string) {
		insert = patient()
		maps.DeleteFunc(insert, func(k, _ string) bool { return ids[k] != "" })
		return nil, insert
	})
	return n > 0, err
}

// SuspendWait has ovn-controller write flows at once, until ResumeWait: the integration bridge has none to keep. Before OVN
// 24.03.2 ovn-controller also waits after each restart of ovs-vswitchd, with no flows at all (run_S_WAIT_BEFORE_CLEAR in
// controller/ofctrl.c). It reports whether it changed the time.
func (s Settings) SuspendWait(ctx context.Context) (bool, error) {
	return s.changeWait(ctx, wait.suspended)
}

// ResumeWait gives ovn-controller back the time before SuspendWait. One set by the operator meanwhile stays. It leaves the
// key names.SuspendedWait to EndWait.
func (s Settings) ResumeWait(ctx context.Context) error {
	_, err := s.changeWait(ctx, wait.resumed)
	return err
}

// EndWait is ResumeWait, and removes the key names.SuspendedWait.
func (s Settings) EndWait(ctx context.Context) error {
	_, err := s.changeWait(ctx, wait.ended)
	return err
}

// ForgetWait takes the time back that KeepFlows has set, and reports whether it was there. A time set by the operator stays,
// unless it is the same.
func (s Settings) ForgetWait(ctx context.Context) (bool, error) {
	return s.changeWait(ctx, wait.forgotten)
}

// A wait has the values of waitBeforeClear and waitSuspended.
type wait struct{ set, former string }

func (w wait) suspended() wait {
	if w.set == "" || w.set == noWait {
		return w // by us, or the operator never wants to wait
	}
	return wait{noWait, w.set}
}

func (w wait) resumed() wait {
	if w.set == noWait && w.former != "" {
		w.set = w.former
	}
	return w
}

func (w wait) ended() wait { return wait{w.resumed().set, ""} }

func (w wait) forgotten() wait {
	w = w.ended()
	if w.set == waitBeforeClearMS {
		w.set = ""
	}
	return w
}

// changeWait changes a wait, and reports whether the result differs.
func (s Settings) changeWait(ctx context.Context, next func(wait) wait) (bool, error) {
	n, err := s.changeIDs(ctx, func(ids map[string]string) (remove, insert map[string]string) {
		remove, insert = map[string]string{}, map[string]string{}
		now := next(wait{ids[waitBeforeClear], ids[waitSuspended]})
		for key, value := range map[string]string{waitBeforeClear: now.set, waitSuspended: now.former} {
			if before := ids[key]; before != value && before != "" {
				remove[key] = before
			}
			if ids[key] != value && value != "" {
				insert[key] = value
			}
		}
		return remove, insert
	})
	return n > 0, err
}

// changeIDs removes and inserts differing keys of Open_vSwitch's external_ids. It returns their number.
func (s Settings) changeIDs(ctx context.Context, change func(ids map[string]string) (remove, insert map[string]string)) (int, error) {
	n := 0
	_, err := s.DB.Converge(ctx, func(c client.Client) (confdb.Plan, error) {
		root, err := confdb.Root(ctx, c)
		if err != nil {
			return confdb.Plan{}, err
		}
		remove, insert := change(root.ExternalIDs)
		n = len(remove) + len(insert)
		if n == 0 {
			return confdb.Plan{}, nil
		}
		return confdb.Plan{Ops: []libovsdb.Operation{mutateIDs(root, remove, insert)}}, nil
	})
	if err != nil {
		return 0, fmt.Errorf("setting external_ids:%s of Open_vSwitch: %w", waitBeforeClear, err)
	}
	return n, nil
}

func ovsMap(m map[string]string) libovsdb.OvsMap {
	out := libovsdb.OvsMap{GoMap: map[any]any{}}
	for k, v := range m {
		out.GoMap[k] = v
	}
	return out
}
