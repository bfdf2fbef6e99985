package desired

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/kind"
	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/ports"
	"ovn-k8s/lib/desired/replyroute"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nb"
)

// Services are the Services and their endpoints.
type Services struct {
	facts        *facts.Index
	factsChanged func(facts.Change) []nb.Unit // of the World: the addresses of the API server are facts, too
	answers      *answer.Index
	hostPorts    *ports.HostPorts

	all    map[service.Key]*serviceState
	owners map[types.NamespacedName]service.Key // of endpoint slices
	claims *ports.Services
	outer  ports.Frontends
	local  *localIndex
	hosts  *hosts
	routes *replyroute.Index
	quotas quotas // of weights, see service.Resolved.OverQuota
	chosen quotas // see service.Resolved.OverChosen
	spare  quotas // see service.Resolved.OverSpare
	// outdated are the addresses outside whose gateway to choose again, once for all changes of an event.
	outdated map[netip.Addr]bool
	// stale are the nodes with other endpoints of large Services since the last settle.
	stale map[service.Key]map[string]bool
	// selection decides how OVN chooses endpoints in this cluster.
	selection loadbalancer.Selection
	// externalIPs is whether those of Services are served.
	externalIPs service.ExternalIPs
	// knownHosts are addresses of hosts in a World without a topology.
	knownHosts ports.Hosts
	inputs     loadbalancer.Inputs
	shared     *interned
}

// A serviceState is a Service and its slices. Either may be missing.
type serviceState struct {
	service.Service // Ours is false until the Service is known
	known           bool
	slices          map[string]service.Slice
	traits
	// listed is service.Resolved.Listed of a Service with variables.
	listed []service.Port
	// charge, chosen and spare are its shares of the limits of its namespace.
	charge, chosen, spare charge
	// recent is the resolved Service, kept from an event to the following Rows: nil if it is cheap.
	recent *service.Resolved
}

// traits are the inputs of the rows of nodes computed from a Service with all its endpoints.
type traits struct {
	byNode    bool // has variables
	byGateway bool // see loadbalancer.ByGateway
	near      bool // has load balancers for groups of nodes
	outside   bool // has external policy Local
	tooLarge  bool // has no rows and no variables
	served    int  // see service.Resolved.Served
}

func newServices(x *facts.Index, factsChanged func(facts.Change) []nb.Unit, claims *ports.Services, hostPorts *ports.HostPorts) *Services {
	s := &Services{
		facts: x, factsChanged: factsChanged, claims: claims, hostPorts: hostPorts,
		all: map[service.Key]*serviceState{}, owners: map[types.NamespacedName]service.Key{},
		quotas:   newQuotas(loadbalancer.MaxWeight, func(s *serviceState) *charge { return &s.charge }),
		chosen:   newQuotas(service.MaxChosen, func(s *serviceState) *charge { return &s.chosen }),
		spare:    newQuotas(service.MaxSpare, func(s *serviceState) *charge { return &s.spare }),
		outdated: map[netip.Addr]bool{}, stale: map[service.Key]map[string]bool{},
		selection:   loadbalancer.Selection{Userspace: true}, // for every datapath
		externalIPs: true,
		shared:      &interned{map[string]string{}},
	}
	s.answers = answer.NewIndex(x, outside{s})
	s.routes = replyroute.NewIndex(x, func(k service.Key, node string) []service.Reply { return s.local.of(k, node).replies })
	s.local = &localIndex{x, map[string]map[service.Key]*localEndpoints{}, s.routes, s.shared}
	s.hosts = &hosts{facts: x, local: s.local}
	s.inputs = inputs(x.Now(), nil, s.selection) // or the first address of a host would be a change for all Services
	return s
}

// Units implements feature.Feature.
func (x *Services) Units() []feature.Units {
	return []feature.Units{
		feature.Named(feature.Services, service.UnitPrefix, service.KeyOf, x.serviceRows, x.serviceUnits),
	}
}

// Kinds implements feature.Reader.
func (x *Services) Kinds() []kind.Kind {
	return []kind.Kind{
		kind.OneByOne(
			func(o *corev1.Service) []nb.Unit { return x.putServices(x.outer.Put(x.externalIPs.New(o))) },
			func(name types.NamespacedName) []nb.Unit { return x.removeService(service.Key(name)) },
			x.serviceNames),
		kind.OneByOne(x.putSlice, x.removeSlice, func() []types.NamespacedName { return slices.Collect(maps.Keys(x.owners)) }),
		kind.Input(x.putSelection),
		kind.Input(func(addrs ports.Hosts) []nb.Unit {
			x.knownHosts = addrs
			return x.updateInputs()
		}),
		kind.Input(func(served service.ExternalIPs) []nb.Unit { // before all Services
			x.externalIPs = served
			return nil
		}),
	}
}

func (x *Services) serviceState(k service.Key) *serviceState {
	s := x.all[k]
	if s == nil {
		s = &serviceState{slices: map[string]service.Slice{}}
		s.Key = k
		x.all[k] = s
	}
	return s
}

func (x *Services) serviceNames() (out []types.NamespacedName) {
	for k, s := range x.all {
		if s.known {
			out = append(out, types.NamespacedName(k))
		}
	}
	return out
}

// putServices records Services with those of their addresses that their namespaces leave them.
func (x *Services) putServices(all []service.Service) (touched []nb.Unit) {
	for _, s := range all {
		if is := x.all[s.Key]; is != nil && is.known && reflect.DeepEqual(is.Service, s) {
			continue // listed again, or changed where it does not matter
		}
		touched = append(touched, x.rivals(s.Key)...)
		var told []service.Key
		touched = append(touched, x.changeService(s.Key, func() (others []service.Key, nodes []string) {
			state := x.serviceState(s.Key)
			nodes = state.nodes()
			x.outdate(x.addressesOf(s.Key))
			state.Service, state.known = s, true
			x.outdate(x.addressesOf(s.Key))
			others, told = x.claims.Put(s)
			return append(others, x.reserve(s.Key)...), nodes
		})...)
		touched = append(touched, unitsOfServices(told)...)
		touched = append(touched, x.rivals(s.Key)...)
	}
	return touched
}

func (x *Services) removeService(k service.Key) []nb.Unit {
	if s := x.all[k]; s == nil || !s.known {
		return nil
	}
	touched := x.rivals(k)
	var told []service.Key
	touched = append(touched, x.changeService(k, func() (others []service.Key, _ []string) {
		x.outdate(x.addressesOf(k))
		state := x.all[k]
		state.Service, state.known = service.Service{Key: k}, false
		others, told = x.claims.Remove(k)
		return append(others, x.reserve(k)...), nil
	})...)
	touched = append(touched, unitsOfServices(told)...)
	return append(touched, x.putServices(x.outer.Remove(k))...)
}

func unitsOfServices(keys []service.Key) (units []nb.Unit) {
	for _, k := range keys {
		units = append(units, k.Unit())
	}
	return units
}

func (x *Services) putSlice(from *discoveryv1.EndpointSlice) []nb.Unit {
	name, k, ok := service.SliceKey(from)
	id := types.NamespacedName{Namespace: from.Namespace, Name: name}
	var touched []nb.Unit
	if was, had := x.owners[id]; had && (!ok || was != k) {
		touched = x.removeSlice(id)
	}
	if !ok {
		return touched
	}
	x.owners[id] = k
	now := service.NewSlice(from, x.shared.copyOf)
	if s := x.all[k]; s != nil && reflect.DeepEqual(s.slices[name], now) {
		return touched
	}
	return append(touched, x.changeSlice(k, name, now)...)
}

func (x *Services) removeSlice(id types.NamespacedName) []nb.Unit {
	k, ok := x.owners[id]
	if !ok {
		return nil
	}
	delete(x.owners, id)
	return x.changeSlice(k, id.Name, service.Slice{})
}

// changeSlice records a slice of a Service; one without a name is gone.
func (x *Services) changeSlice(k service.Key, name string, now service.Slice) []nb.Unit {
	touched := x.rivalsOfEndpoints(k)
	s := x.serviceState(k)
	was := s.slices[name]
	if s.slices[name] = now; now.Name == "" {
		delete(s.slices, name)
	}
	nodes := was.Nodes(now)
	x.local.putSlice(s, name, nodes)
	if s.large() && k != service.APIServer() {
		s.recent = nil
		return append(touched, x.settleLater(k, nodes)...)
	}
	touched = append(touched, x.changedEndpoints(k, nodes)...)
	return append(touched, x.rivalsOfEndpoints(k)...)
}

// changedEndpoints returns the units to compute again after a change of a Service's endpoints on some nodes.
func (x *Services) changedEndpoints(k service.Key, nodes []string) []nb.Unit {
	touched := x.changeService(k, func() ([]service.Key, []string) { return x.reserve(k), nodes })
	if s := x.all[k]; s != nil && s.ExternalLocal {
		touched = append(touched, x.answers.ForNodes(s.Outside, nodes)...)
	}
	return touched
}

// settleLater records changed endpoints of a large Service for settle, and returns its unit.
func (x *Services) settleLater(k service.Key, nodes []string) []nb.Unit {
	if x.stale[k] == nil {
		x.stale[k] = map[string]bool{}
	}
	for _, node := range nodes {
		x.stale[k][node] = true
	}
	return []nb.Unit{k.Unit()}
}

// settle looks once at each large Service with changed slices, and returns the units to compute again: the control
// plane writes hundreds of slices together, and each of them would cost as much as all.
func (x *Services) settle() (touched []nb.Unit) {
	for k, nodes := range x.stale {
		if x.all[k] != nil {
			touched = append(touched, x.changedEndpoints(k, slices.Collect(maps.Keys(nodes)))...)
		}
		delete(x.stale, k) // after updateTraits
	}
	return touched
}

// rivals returns the units of pods with hostPorts at frontends of a Service, or at the API server's endpoints.
func (x *Services) rivals(k service.Key) []nb.Unit {
	s := x.all[k]
	if s == nil {
		return nil
	}
	return append(x.rivalsOfEndpoints(k), x.hostPorts.Rivals(s.Service)...)
}

// rivalsOfEndpoints returns the units of pods with hostPorts at an endpoint of the API server, if k is its Service.
func (x *Services) rivalsOfEndpoints(k service.Key) []nb.Unit {
	s := x.all[k]
	if s == nil || k != service.APIServer() {
		return nil
	}
	return x.hostPorts.RivalsOfEndpoints(maps.Values(s.slices))
}

// reserve reserves the API server's addresses, if k is its Service, and returns the other Services affected.
func (x *Services) reserve(k service.Key) []service.Key {
	if k != service.APIServer() {
		return nil
	}
	s := x.all[k]
	return x.claims.Reserve(service.Resolve(s.Service, slices.Collect(maps.Values(s.slices))).Endpoints)
}

// changeService applies change to one Service. change returns the other Services affected, and the nodes with other
// endpoints. changeService returns the units to compute again: the Services, and the chassis of these nodes.
func (x *Services) changeService(k service.Key, change func() (others []service.Key, nodes []string)) []nb.Unit {
	others, nodes := change()
	x.all[k].recent = nil
	touched := []nb.Unit{k.Unit()}
	touched = append(touched, x.updateTraits(k)...)
	for _, other := range others {
		touched = append(touched, other.Unit())
		touched = append(touched, x.updateTraits(other)...)
	}
	s := x.all[k]
	if s.byNode {
		touched = append(touched, x.changedLocal(s, nodes)...)
	}
	touched = append(touched, x.quotas.settle(x.updateTraits)...)
	for _, c := range []*quotas{&x.chosen, &x.spare} {
		touched = append(touched, c.settle(func(service.Key) []nb.Unit { return nil })...) // it changes no rows
	}
	touched = append(touched, x.chooseGateways()...)
	if !s.known && len(s.slices) == 0 {
		delete(x.all, k)
	}
	if k == service.APIServer() {
		touched = append(touched, x.factsChanged(x.facts.PutAPIServer(x.claims.Reserved()))...)
	}
	return touched
}

// changedLocal returns the units to compute again after a change of a Service's endpoints on some nodes: those of the
// chassis, and of the routes for replies.
func (x *Services) changedLocal(s *serviceState, nodes []string) []nb.Unit {
	touched := x.hosts.units(nodes...)
	for _, node := range nodes {
		x.local.forget(s.Key, node)
		units, refused := x.routes.Put(s.Service, node, x.local.candidates(s, node))
		for other := range refused {
			x.local.forget(other, node)
		}
		touched = append(touched, units...)
	}
	return touched
}

// updateTraits computes the traits of a Service. If they differ, it returns the units of chassis with its endpoints.
func (x *Services) updateTraits(k service.Key) []nb.Unit {
	s := x.all[k]
	if s == nil {
		return nil
	}
	if s.large() {
		r := s.resolve()
		s.recent = &r
	}
	was, r := s.traits, x.resolved(k)
	weight, fits := loadbalancer.New(&r, x.inputs).Weight()
	x.quotas.charge(s, loadbalancer.Charged(weight))
	x.chosen.charge(s, r.Chosen())
	x.spare.charge(s, r.Spare())
	s.traits = traits{r.ByNode(), loadbalancer.ByGateway(&r, x.facts.Now().Cluster.Subnets), loadbalancer.Near(&r), r.Ours && r.ExternalLocal, !fits || s.charge.refused, r.Served}
	if s.listed = nil; s.byNode {
		s.listed = r.Listed
	}
	if s.traits == was {
		return nil
	}
	var touched []nb.Unit
	switch {
	case s.outside && !was.outside:
		touched = x.routes.AddLocal(1)
	case was.outside && !s.outside:
		touched = x.routes.AddLocal(-1)
	}
	if s.byNode != was.byNode {
		for name, sl := range s.slices {
			x.local.putSlice(s, name, sl.Nodes(service.Slice{}))
		}
	}
	x.outdate(s.Outside)
	if !s.byNode && !was.byNode {
		return touched
	}
	return append(touched, x.changedLocal(s, slices.AppendSeq(s.nodes(), maps.Keys(x.stale[k])))...)
}

// resolved joins a Service and its slices, until the next event: its Lost is a view.
func (x *Services) resolved(k service.Key) service.Resolved {
	s := x.all[k]
	if s == nil || !s.known {
		return service.Resolved{}
	}
	r := s.resolve()
	r.LoseTo(x.claims.Lost(k))
	r.Taken = x.claims.Taken(k)
	if s.outside {
		r.RefuseOn(x.routes.Refused(k))
	}
	r.OverQuota = s.charge.refused
	r.Choose(s.chosen.refused, s.spare.refused, x.inputs.IsHosts)
	return r
}

// resolve joins the Service and its slices.
func (s *serviceState) resolve() service.Resolved {
	if s.recent == nil {
		return service.Resolve(s.Service, slices.Collect(maps.Values(s.slices)))
	}
	r := *s.recent
	r.Problems = slices.Clip(r.Problems)
	return r
}

// Service returns the Service of unit u, with its endpoints.
func (x *Services) Service(u nb.Unit) (service.Resolved, bool) {
	k, ok := service.KeyOf(u)
	if s := x.all[k]; !ok || s == nil || !s.known {
		return service.Resolved{}, false
	}
	r := x.resolved(k)
	if r.Lost.Number > 0 {
		r.Lost = service.LostIn(x.claims.Copied(k))
	}
	return r, true
}

// ServiceSummaries returns the frontends of the Service of unit u.
func (x *Services) ServiceSummaries(u nb.Unit) []loadbalancer.Summary {
	r, _ := x.Service(u)
	out := loadbalancer.New(&r, x.inputs).Summaries()
	for i, s := range out {
		if g := x.answers.Answering(s.Addr); g != "" {
			out[i].Notes = append(s.Notes, "gateway "+g+" answers ARP and ND")
		}
	}
	return out
}

func (x *Services) serviceUnits() (out []nb.Unit) {
	for _, name := range x.serviceNames() {
		out = append(out, service.Key(name).Unit())
	}
	return out
}

// serviceRows returns the load balancers of a Service as far as possible. The rest is in the Problem.
func (x *Services) serviceRows(k service.Key) ([]nb.Row, error) {
	r := x.resolved(k)
	if s := x.all[k]; s != nil {
		s.recent = nil
	}
	rows := loadbalancer.New(&r, x.inputs).Rows()
	if len(r.Problems) == 0 {
		return rows, nil
	}
	p := &feature.Problem{Reason: r.Problems[0].Reason}
	for i, one := range r.Problems {
		if i == maxProblems {
			p.Message += fmt.Sprintf("; and %d more", len(r.Problems)+r.Untold-i)
			break
		}
		p.Message += strings.Repeat("; ", min(i, 1)) + one.Message
	}
	return rows, p
}

// maxProblems is the maximum number of problems in the message for one Service: an Event has room for 1024
// characters.
const maxProblems = 4

// nodes returns the nodes with endpoints.
func (s *serviceState) nodes() []string {
	out := map[string]bool{}
	for _, sl := range s.slices {
		for _, h := range sl.Endpoints {
			out[h.Node] = true
		}
	}
	return slices.Collect(maps.Keys(out))
}

func merged[K comparable, V any](a, b map[K]V) map[K]V {
	out := map[K]V{}
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}
