package kube

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"sync"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// An Event is a change of objects of one kind. Objects have only the fields that the kind keeps. Several subscribers may
// have them: nobody may change them.
type Event struct {
	Kind    Kind
	Object  runtime.Object // the current object or, if Gone, its last state
	Gone    bool
	Replace bool // Objects is the full list of the kind, and Object is nil
	// Objects are runtime.Objects of the kind. They are made while they are read, so that a long list takes little memory.
	Objects iter.Seq[any]
}

// A Subscription is a kind of objects that a role follows.
type Subscription struct {
	Kind Kind
	// Node, unless empty, restricts the objects to those on one node, or to this Node.
	Node string
	// Optional, as in Kind, for this role.
	Optional bool
	// Latest: a list is the state of the cluster at that time. Other lists may be some seconds old, and the changes since
	// then follow. Few processes of a cluster may want it: each such list reads all objects from etcd.
	Latest bool
	// Send gets every change: first one Replace, then single changes, and a Replace again after a long loss of the
	// connection, or when another role subscribes later. It must not block.
	Send func(Event)
	// Lost gets the reason whenever the objects cannot be listed or watched; the next Replace tells that they can be again.
	// Optional objects that do not exist, or must not be read, are not lost. It must not block. nil: not used.
	Lost func(error)
}

// Informers follow objects for the roles of one process, by one LIST and one WATCH for each kind, whatever the number of
// subscribers. No copy of the objects is kept.
type Informers struct {
	config *rest.Config

	mu      sync.Mutex                // guards the fields below
	clients map[string]rest.Interface // by name of the kind
	running map[string]*informer      // by name of the kind
}

// NewInformers returns informers of config's API server, for NewCluster.
func NewInformers(config *rest.Config) *Informers {
	return &Informers{config: config, clients: map[string]rest.Interface{}, running: map[string]*informer{}}
}

// A Sharing returns the informers for a configuration.
type Sharing func(*rest.Config) *Informers

// Share makes roles of a process share informers, as long as they connect to one API server with the same credentials.
// A token in memory counts as the same: it follows a setting of the process.
func Share() Sharing {
	var mu sync.Mutex
	var last *Informers
	var of access
	return func(config *rest.Config) *Informers {
		mu.Lock()
		defer mu.Unlock()
		if now := accessOf(config); last == nil || !reflect.DeepEqual(of, now) {
			last, of = NewInformers(config), now
		}
		return last
	}
}

// An access is an API server, with the way to it and the credentials.
type access struct {
	host, proxy, user, password, token, tokenFile string
	tls                                           rest.TLSClientConfig
	as                                            rest.ImpersonationConfig
	wrapped                                       bool // with a token in memory
}

// accessOf reads the files of certificates: their contents count.
func accessOf(c *rest.Config) access {
	read := rest.CopyConfig(c)
	_ = rest.LoadTLSFiles(read) // without a file, the first request fails
	a := access{c.Host, "", c.Username, c.Password, c.BearerToken, c.BearerTokenFile, read.TLSClientConfig, c.Impersonate, c.WrapTransport != nil}
	if r, err := http.NewRequest(http.MethodGet, c.Host, nil); err == nil && c.Proxy != nil {
		proxy, _ := c.Proxy(r) // without one, the first request fails
		a.proxy = fmt.Sprint(proxy)
	}
	return a
}

// add prepares to follow some kinds.
func (i *Informers) add(kinds []Kind) error {
	shared, err := rest.HTTPClientFor(i.config)
	if err != nil {
		return fmt.Errorf("making a Kubernetes client: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, k := range kinds {
		if i.clients[k.Name] != nil {
			continue
		}
		if i.clients[k.Name], err = k.client(i.config, shared); err != nil {
			return err
		}
	}
	return nil
}

func (i *Informers) client(k Kind) rest.Interface {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.clients[k.Name]
}

// Follow sends changes to subscribers until ctx is done.
func (i *Informers) Follow(ctx context.Context, log *logrus.Entry, subscriptions ...Subscription) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, s := range subscriptions {
		s.Optional = s.Optional || s.Kind.Optional
		leave := i.join(s.Kind, &subscriber{Subscription: s}, log)
		wg.Go(func() {
			<-ctx.Done()
			leave()
		})
	}
}

// join adds a subscriber to the informer of a kind, and starts that for the first one. leave stops it after the last one.
func (i *Informers) join(k Kind, s *subscriber, log *logrus.Entry) (leave func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f := i.running[k.Name]
	if f == nil {
		ctx, stop := context.WithCancel(context.Background())
		f = newInformer(k, i.clients[k.Name], log)
		f.stop = stop
		i.running[k.Name] = f
		f.add(s)
		go f.run(ctx)
	} else {
		f.add(s)
	}
	return func() {
		i.mu.Lock()
		last := f.remove(s)
		if last {
			delete(i.running, k.Name)
		}
		i.mu.Unlock()
		if last {
			f.stop()
			<-f.done
		}
	}
}

// List returns the current objects of some kinds, as one Replace of each.
func (i *Informers) List(ctx context.Context, kinds ...Kind) ([]Event, error) {
	var out []Event
	for _, k := range kinds {
		e, err := i.ListOn(ctx, k, "")
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// ListOn is List for the objects of one kind on a node, or for this Node, as Subscription.Node says; "": for all.
func (i *Informers) ListOn(ctx context.Context, k Kind, node string) (Event, error) {
	e := Event{Kind: k, Replace: true, Objects: unpacked[any](nil)}
	list, err := newSource(k, i.client(k), node, node == "").ListWithContext(ctx, metav1.ListOptions{})
	if k.Optional && Unavailable(err) {
		return e, nil
	}
	if err != nil {
		return e, fmt.Errorf("listing %s: %w", k.Name, err)
	}
	all, err := meta.ExtractList(list)
	if err != nil {
		return e, fmt.Errorf("listing %s: %w", k.Name, err)
	}
	e.Objects = unpacked(all)
	return e, nil
}
