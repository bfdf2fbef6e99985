// Package otherlease keeps two watchers with different Leases, those of different namespaces, from deposing each
// other in turn.
package otherlease

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/ovsdb"
)

// A Wait waits until the leader named by the database's token has lost its Lease, if that is not ours.
type Wait struct {
	Log *logrus.Entry
	// Own is the Lease of this watcher, and Identity its identity in Leases.
	Own      types.NamespacedName
	Identity string
	// Dead reports whether another candidate is known to have ended.
	Dead func(identity string) bool
	// Leader returns the leader named by the token.
	Leader func() (ovsdb.Leader, error)
	// Holder reads a Lease.
	Holder func(context.Context, types.NamespacedName) (kube.Holding, error)

	lease types.NamespacedName // of the leader; the zero value: none was seen
	last  kube.Holding
	since time.Time // of last, by the monotonic clock
	told  bool      // about lease
}

// pause is the time between two looks.
const pause = time.Second

// Run waits until this watcher may begin a term, or returns ctx's error. It logs the way out, once for each Lease.
func (w *Wait) Run(ctx context.Context) error {
	for w.held(ctx) {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return ctx.Err()
}

// held reports whether the leader's Lease is another one and held. A Lease is free once it was not renewed for its duration,
// and for kube.LeaseDuration. The latter holds for one that this watcher may not read: its holder probably has no right to it
// either.
func (w *Wait) held(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	leader, err := w.Leader()
	if err != nil {
		return true // not connected
	}
	if !w.follow(leader) {
		return false
	}
	now, err := w.Holder(ctx, w.lease)
	switch {
	case err != nil && !kube.Refuses(err):
		w.since = time.Now()
	case err != nil:
		w.warn("the Lease of the leader cannot be read: %v: apply the rights in rbac.yaml; %s", err, Text(leader, w.Own))
	case err == nil && (now.Identity == "" || now.Identity == w.Identity || w.Dead(now.Identity)):
		return false
	case err == nil && now != w.last:
		w.renewed(leader, now)
	}
	if time.Since(w.since) < max(kube.LeaseDuration, w.last.Duration) {
		return true
	}
	w.Log.Infof("the Lease %s of the former leader is not renewed (%v): taking over with the Lease %s", w.lease, err, w.Own)
	return false
}

// follow records the leader's Lease, and reports whether it is another one. A token removed for a moment changes
// nothing: its leader writes it again.
func (w *Wait) follow(leader ovsdb.Leader) bool {
	if leader == (ovsdb.Leader{}) {
		return w.lease != types.NamespacedName{}
	}
	if !Other(leader, w.Own) {
		return false
	}
	if lease := parse(leader.Lease); lease != w.lease {
		w.lease, w.last, w.since, w.told = lease, kube.Holding{}, time.Now(), false
	}
	return true
}

// renewed records a renewal, and logs the second one: the first may be that of a watcher that has ended.
func (w *Wait) renewed(leader ovsdb.Leader, now kube.Holding) {
	if w.last != (kube.Holding{}) {
		w.warn("%s", Text(leader, w.Own))
	}
	w.last, w.since = now, time.Now()
}

// warn logs the first reason for standby.
func (w *Wait) warn(format string, args ...any) {
	if !w.told {
		w.told = true
		w.Log.Warnf("standby: "+format, args...)
	}
}

// Other reports whether the leader was elected with another Lease than own.
func Other(leader ovsdb.Leader, own types.NamespacedName) bool {
	lease := parse(leader.Lease)
	return lease != types.NamespacedName{} && lease != own
}

// Text describes a leader with another Lease, and the way out.
func Text(leader ovsdb.Leader, own types.NamespacedName) string {
	return fmt.Sprintf("the watcher of %q leads since %s (term %d) with the Lease %s, but this one has the Lease %s: set ovn-config-namespace to the same namespace for all watchers, for example: ovs-vsctl set Open_vSwitch . external_ids:ovn-k8s-config-namespace=%s",
		leader.Identity, leader.Since.Format(time.RFC3339), leader.Term, leader.Lease, own, parse(leader.Lease).Namespace)
}

// parse reads "namespace/name". Any other text is no Lease.
func parse(lease string) types.NamespacedName {
	namespace, name, ok := strings.Cut(lease, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}
