// Package conflicts reports problems of Services on this node, once each: in the log and by Events of the Services.
package conflicts

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/link"
)

// A conflict is a problem of a Service on this node.
type conflict struct {
	service service.Key
	uid     string
	reason  string // one word in CamelCase
	message string
}

// object returns the Service, for an Event.
func (c conflict) object() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: c.service.Namespace, Name: c.service.Name, UID: types.UID(c.uid)}}
}

// A Reporter reports conflicts.
type Reporter struct {
	// Warn writes an Event.
	Warn func(about runtime.Object, reason, message string)
	log  *logrus.Entry
	told map[string]map[string]bool // by kind
	free map[string]time.Time       // when a namespace has all its reports again; see may
	now  func() time.Time
}

// New returns a Reporter that writes no Events so far.
func New(log *logrus.Entry) *Reporter {
	return &Reporter{
		Warn: func(runtime.Object, string, string) {}, log: log, told: map[string]map[string]bool{}, free: map[string]time.Time{}, now: time.Now,
	}
}

// Services come and go as often as their author likes, and each host reports. The first reportsAtOnce reports about a
// namespace are written at once, and then one each reportsEvery.
const (
	reportsAtOnce = 4
	reportsEvery  = time.Minute
)

// may reports whether a namespace may have another report now, and counts it.
func (r *Reporter) may(namespace string, now time.Time) bool {
	free := r.free[namespace]
	if free.Before(now) {
		free = now
	}
	if free = free.Add(reportsEvery); free.Sub(now) > reportsAtOnce*reportsEvery {
		return false
	}
	r.free[namespace] = free
	return true
}

// tell reports new conflicts in the log and by Events of the Services, and forgets
// solved ones. all are the present conflicts of a kind. Those beyond the limit of their
// namespace stay new: a later call reports them, and there is one each minute.
func (r *Reporter) tell(kind string, all []conflict) {
	now, told := r.now(), map[string]bool{}
	maps.DeleteFunc(r.free, func(_ string, free time.Time) bool { return !free.After(now) })
	for _, c := range all {
		switch {
		case told[c.message]:
		case r.told[kind][c.message]:
			told[c.message] = true
		case r.may(c.service.Namespace, now):
			told[c.message] = true
			r.log.Warn(c.message)
			r.Warn(c.object(), c.reason, c.message)
		}
	}
	r.told[kind] = told
}

// Servers warns of Services whose external IP is the address of a database
// or the API server.
func (r *Reporter) Servers(host nodeport.Host, frontends service.List) {
	var all []conflict
	for _, f := range nodeport.ServerClaims(host, frontends) {
		at := netip.AddrPortFrom(f.Addr, f.Number)
		all = append(all, conflict{f.Key, f.UID, "ExternalIPReserved", fmt.Sprintf(
			"external IP %v of service %s: address of a database or the API server, the connections of node %s to it are not balanced; remove it from spec.externalIPs", at, f.Key, host.Node)})
	}
	r.tell("servers", all)
}

// NodePorts looks for programs of this host that listen at NodePorts: the Service
// gets the connections of clients outside and of the host instead.
func (r *Reporter) NodePorts(host nodeport.Host, frontends service.List) error {
	nodePorts := slices.DeleteFunc(slices.Collect(frontends.Outside()), func(f service.Frontend) bool { return f.Kind != service.NodePort })
	if len(nodePorts) == 0 {
		r.tell("NodePorts", nil)
		return nil
	}
	listeners, err := link.Listeners()
	if err != nil {
		return err
	}
	found := map[service.Claim]conflict{} // one for both families
	for _, f := range nodePorts {
		if c := f.Claim(); listeners[link.Listener{Protocol: strings.ToLower(string(c.Protocol)), Port: c.Port}] {
			found[c] = conflict{f.Key, f.UID, "NodePortInUse", fmt.Sprintf("%s of service %s: a program of node %s listens there, too, and is not reached any more: give the service or the program another port", c, f.Key, host.Node)}
		}
	}
	r.tell("NodePorts", slices.Collect(maps.Values(found)))
	return nil
}

// HealthChecks reports those of Services whose ports are in use. busy are the errors by port.
func (r *Reporter) HealthChecks(node string, services []*service.Resolved, busy map[uint16]error) error {
	var all []conflict
	for _, s := range services {
		if err := busy[s.HealthCheckNodePort]; err != nil {
			all = append(all, conflict{s.Key, s.UID, "HealthCheckNodePortInUse", fmt.Sprintf("on node %s: %v", node, err)})
		}
	}
	r.tell("health checks", all)
	if len(busy) > 0 {
		return fmt.Errorf("%d health checks have no port", len(busy))
	}
	return nil
}
