package connections

import (
	"net/netip"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/tracked"
	"ovn-k8s/lib/link"
)

// A Host deletes stale UDP connections of one family in the host's kernel. It begins by looking at all.
type Host struct {
	Family netip.Addr
	Log    *logrus.Entry
	done   bool // the last time, without an error
	last   tracked.Table
}

// Forget deletes the connections that are stale now. It looks at them only if other ones are stale than the last time, after an
// error, and after changes of rules: those may come late, when connections have begun without them.
func (h *Host) Forget(now tracked.Table, changes []string) error {
	rewritten := len(changes) > 0 && now.Translated || nodeport.OfHostPorts(changes)
	now.Keep(h.last)
	if h.done && !rewritten && now.Equal(h.last) {
		h.last = now
		return nil
	}
	n, err := link.ForgetUDP(h.Family, func(c link.Connection) bool { return now.Stale(c.To, c.Answers) })
	if n > 0 {
		h.Log.Infof("forgot %d UDP connections to endpoints that are gone", n)
	}
	h.done, h.last = err == nil, now
	return err
}
