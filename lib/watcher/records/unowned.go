package records

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb/nbdb"
)

// Unowned describes each unowned load balancer with frontends of Services, as from the Python era, and the
// remedy. They are never changed.
func (r *Records) Unowned() []string {
	rows := r.rows()
	if rows == nil {
		return nil
	}
	attached := map[string]bool{}
	for _, m := range rows.Table(nbdb.LogicalSwitchTable).RowsShallow() {
		mark(attached, m.(*nbdb.LogicalSwitch).LoadBalancer)
	}
	for _, m := range rows.Table(nbdb.LogicalRouterTable).RowsShallow() {
		mark(attached, m.(*nbdb.LogicalRouter).LoadBalancer)
	}
	ours, unowned := map[string]string{}, map[string]*nbdb.LoadBalancer{}
	for _, m := range rows.Table(nbdb.LoadBalancerTable).RowsShallow() {
		lb := m.(*nbdb.LoadBalancer)
		owner := lb.ExternalIDs[names.Owner]
		switch {
		case owner == "" && attached[lb.UUID]:
			unowned[lb.UUID] = lb
		case strings.HasPrefix(owner, service.UnitPrefix):
			for vip := range lb.Vips {
				ours[frontend(lb, vip)] = owner
			}
		}
	}
	var lines []string
	for _, uuid := range slices.Sorted(maps.Keys(unowned)) {
		if line := conflict(unowned[uuid], ours); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func mark(set map[string]bool, all []string) {
	for _, s := range all {
		set[s] = true
	}
}

// frontend is the key of a frontend; only one load balancer can have it. Without a protocol, a load balancer has TCP.
func frontend(lb *nbdb.LoadBalancer, vip string) string {
	protocol := "tcp"
	if lb.Protocol != nil {
		protocol = *lb.Protocol
	}
	return vip + "/" + protocol
}

// conflict describes the frontends of Services that an unowned load balancer has, "" if none.
func conflict(lb *nbdb.LoadBalancer, ours map[string]string) string {
	var taken []string
	for vip := range lb.Vips {
		if owner, ok := ours[frontend(lb, vip)]; ok {
			taken = append(taken, fmt.Sprintf("%s of %s", frontend(lb, vip), strings.Replace(owner, "/", " ", 1)))
		}
	}
	if len(taken) == 0 {
		return ""
	}
	slices.Sort(taken)
	more := ""
	if n := len(taken) - 3; n > 0 {
		taken, more = taken[:3], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("load balancer %s (%s), which is not ours, takes connections to %s%s: remove it with \"ovn-nbctl lb-del %s\"",
		lb.UUID, label(lb), strings.Join(taken, ", "), more, lb.UUID)
}

// label returns the name and external_ids of a load balancer, for people.
func label(lb *nbdb.LoadBalancer) string {
	var words []string
	if lb.Name != "" {
		words = append(words, lb.Name)
	}
	for _, k := range slices.Sorted(maps.Keys(lb.ExternalIDs)) {
		words = append(words, k+"="+lb.ExternalIDs[k])
	}
	if len(words) == 0 {
		return "no name"
	}
	return strings.Join(words, " ")
}

// WarnUnowned logs each problem of Unowned once.
func (r *Records) WarnUnowned(log *logrus.Entry) {
	lines := r.Unowned()
	for _, l := range lines {
		if !slices.Contains(r.unowned, l) {
			log.Warn(l)
		}
	}
	r.unowned = lines
}
