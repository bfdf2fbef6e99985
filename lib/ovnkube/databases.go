package ovnkube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/sirupsen/logrus"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/hostids"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/settings"
)

// databaseService is the Service of the databases, in ovn-config-namespace.
const databaseService = "ovnkube-db"

// addresses are the HOST:PORT of both databases.
type addresses struct{ north, south []string }

// A locator follows the addresses of the databases in EndpointSlices.
type locator struct {
	Options
	share  kube.Sharing
	now    atomic.Pointer[addresses] // nil: those of the settings, or recorded ones
	absent atomic.Bool               // the API server has had no Service: recorded addresses do not count
	reload chan struct{}             // a value when resolve may have another result
}

func newLocator(o Options, share kube.Sharing) *locator {
	return &locator{Options: o, share: share, reload: make(chan struct{}, 1)}
}

// resolve is options.Config with the addresses found, in the schemes of the settings. A unix socket stays as it is. Until the
// API server answers, those count that the node role of a former process has recorded: it may have found them.
func (l *locator) resolve(s config.Sources) (config.Config, error) {
	o, err := options.Resolve(s)
	found := l.now.Load()
	if err != nil || found == nil && l.absent.Load() {
		return o.Config, err
	}
	if found == nil {
		own := hostids.Own(s.ExternalIDs)
		found = &addresses{north: recorded(o.NB, own["ovn-nb"]), south: recorded(o.SB, own["ovn-remote"])}
	}
	s.Flags = maps.Clone(s.Flags)
	use := func(option string, configured, found []string) {
		if remotes := located(configured, found); len(remotes) > 0 && !slices.Equal(remotes, configured) {
			s.Flags[option] = strings.Join(remotes, ",")
		}
	}
	use("nb-address", o.NB, found.north)
	use("sb-address", o.SB, found.south)
	return options.Config(s)
}

// recorded are the addresses in a value of external_ids, nil if they have another scheme than those configured.
func recorded(configured []string, value string) (all []string) {
	if len(configured) == 0 || value == "" {
		return nil
	}
	scheme, _, _ := strings.Cut(configured[0], ":")
	for remote := range strings.SplitSeq(value, ",") {
		address, same := strings.CutPrefix(remote, scheme+":")
		if !same {
			return nil
		}
		all = append(all, address)
	}
	return all
}

// located are the addresses found with the scheme of those configured, nil without tcp: or ssl:.
func located(configured, found []string) (all []string) {
	if len(configured) == 0 {
		return nil
	}
	scheme, _, _ := strings.Cut(configured[0], ":")
	if scheme != "tcp" && scheme != "ssl" {
		return nil
	}
	for _, f := range found {
		all = append(all, scheme+":"+f)
	}
	return all
}

// role follows the Service. It serves again when the connection to the API server changes.
func (l *locator) role() settings.Role {
	log := settings.Log(l.Log, Program)
	return settings.Role{Log: log, Part: "databases", Quiet: true, Check: checkKubeconfig, Serve: func(ctx context.Context, s settings.Session, ready func()) error {
		cluster, err := l.connect(s)
		if err != nil {
			return err
		}
		defer cluster.Close()
		ready()
		cluster.Follow(ctx, log, kube.Subscription{Kind: kube.KindOf(&discoveryv1.EndpointSlice{}), Send: l.following(s, log).record})
		return ctx.Err()
	}}
}

// checkKubeconfig returns an error if a kubeconfig is given and invalid.
func checkKubeconfig(c config.Config) error {
	if c.Kubeconfig == "" {
		return nil
	}
	_, err := kube.Connect(c, nil, Program)
	return err
}

func (l *locator) connect(s settings.Session) (*kube.Cluster, error) {
	server, err := kube.Connect(s.Config, s.Token, Program)
	if err != nil {
		return nil, settings.Wrong(err)
	}
	return kube.NewCluster(server, Program, l.share)
}

func (l *locator) following(s settings.Session, log *logrus.Entry) *following {
	return &following{locator: l, log: log, namespace: s.Config.ConfigNamespace, slices: map[types.NamespacedName]*discoveryv1.EndpointSlice{}}
}

// look finds the addresses once.
func (l *locator) look(ctx context.Context, s settings.Session) error {
	cluster, err := l.connect(s)
	if err != nil {
		return err
	}
	defer cluster.Close()
	all, err := cluster.ListOn(ctx, kube.KindOf(&discoveryv1.EndpointSlice{}), "")
	if err != nil {
		return err
	}
	l.following(s, settings.Log(l.Log, Program)).record(all)
	return nil
}

// following are the EndpointSlices of the Service. The informer of their kind calls record, one event after the other.
type following struct {
	*locator
	log       *logrus.Entry
	namespace string
	slices    map[types.NamespacedName]*discoveryv1.EndpointSlice
}

// record records an event, and uses the addresses if it was about the Service.
func (f *following) record(e kube.Event) {
	switch s, ok := f.ours(e.Object); {
	case e.Replace:
		clear(f.slices)
		for o := range e.Objects {
			if s, ok := f.ours(o); ok {
				f.slices[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = s
			}
		}
	case !ok:
		return
	case e.Gone:
		delete(f.slices, types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
	default:
		f.slices[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = s
	}
	if len(f.slices) == 0 && !f.absent.Swap(true) {
		f.poke()
	}
	if err := f.use(f.slices); err != nil {
		f.log.Warnf("Service %s/%s: %v; the former addresses of the databases stay", f.namespace, databaseService, err)
	}
}

// ours returns a slice of the Service.
func (f *following) ours(o any) (*discoveryv1.EndpointSlice, bool) {
	s, ok := o.(*discoveryv1.EndpointSlice)
	return s, ok && s.Namespace == f.namespace && s.Labels[discoveryv1.LabelServiceName] == databaseService
}

// use takes over the addresses in slices. Without any, the former ones stay: the databases may be about to restart.
func (l *locator) use(all map[types.NamespacedName]*discoveryv1.EndpointSlice) error {
	found, err := locate(all)
	if err != nil || len(found.north) == 0 {
		return err
	}
	if before := l.now.Swap(&found); before == nil || !found.equal(*before) {
		l.poke()
	}
	return nil
}

// poke has the settings resolved again.
func (l *locator) poke() {
	select {
	case l.reload <- struct{}{}:
	default:
	}
}

func (a addresses) equal(b addresses) bool {
	return slices.Equal(a.north, b.north) && slices.Equal(a.south, b.south)
}

// locate lists all endpoints, ready or not: a member of a cluster that restarts keeps its place.
func locate(all map[types.NamespacedName]*discoveryv1.EndpointSlice) (found addresses, err error) {
	for _, s := range all {
		ports := map[string]string{}
		for _, p := range s.Ports {
			if p.Name != nil && p.Port != nil {
				ports[*p.Name] = strconv.Itoa(int(*p.Port))
			}
		}
		if len(s.Endpoints) > 0 && (len(ports) != 2 || ports["north"] == "" || ports["south"] == "") {
			err = errors.Join(err, fmt.Errorf("EndpointSlice %s has the ports %q; want two, north and south", s.Name, slices.Sorted(maps.Keys(ports))))
			continue
		}
		for _, e := range s.Endpoints {
			for _, a := range e.Addresses {
				found.north = append(found.north, net.JoinHostPort(a, ports["north"]))
				found.south = append(found.south, net.JoinHostPort(a, ports["south"]))
			}
		}
	}
	for _, list := range []*[]string{&found.north, &found.south} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return found, err
}
