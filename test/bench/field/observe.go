package field

import (
	"context"
	"fmt"
	"sync"
	"time"

	libcache "github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb"
)

// Patience bounds each wait.
const Patience = 5 * time.Minute

// A Sight has the times of the events of one pod.
type Sight struct {
	Begun     time.Time // its create call
	appeared  time.Time // in the watch of pods
	annotated time.Time // in the same watch
	ported    time.Time // its port in the Northbound database
}

// Done is the time of the last event; zero before.
func (s *Sight) Done() time.Time {
	if s.annotated.IsZero() || s.ported.IsZero() {
		return time.Time{}
	}
	if s.annotated.After(s.ported) {
		return s.annotated
	}
	return s.ported
}

// An observer sees pods get their annotations and ports. It observes both contenders by the same two connections: a
// watch of the pods' metadata, and a monitor of the ports' names.
type observer struct {
	db *ovsdb.DB

	mu      sync.Mutex // guards the following fields
	sights  map[string]*Sight
	want    int // number of pods awaited
	got     int
	arrived chan struct{} // closed when want are there
}

// observe starts an observer until the end of ctx.
func observe(ctx context.Context, config *rest.Config, remote string) (*observer, error) {
	o := &observer{sights: map[string]*Sight{}}
	if err := o.observePods(ctx, config); err != nil {
		return nil, fmt.Errorf("observing pods: %w", err)
	}
	m, err := ovsdb.NBModel()
	if err != nil {
		return nil, err
	}
	o.db, err = ovsdb.Open(ctx, ovsdb.Options{
		Name: "NB", Remotes: []string{remote}, Model: m,
		Tables: []ovsdb.Table{{Name: nbdb.LogicalSwitchPortTable, Columns: []string{"name"}}},
	})
	if err != nil {
		return nil, err
	}
	o.db.Handle(&libcache.EventHandlerFuncs{AddFunc: func(_ string, m model.Model) {
		o.note(m.(*nbdb.LogicalSwitchPort).Name, func(s *Sight) *time.Time { return &s.ported })
	}})
	return o, nil
}

func (o *observer) observePods(ctx context.Context, config *rest.Config) error {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	informer := metadatainformer.NewFilteredMetadataInformer(client, corev1.SchemeGroupVersion.WithResource("pods"), metav1.NamespaceAll, 0, nil, nil).Informer()
	seen := func(obj any) {
		p := obj.(*metav1.PartialObjectMetadata)
		port := names.PodPort(p.Namespace, p.Name)
		o.note(port, func(s *Sight) *time.Time { return &s.appeared })
		if p.Annotations[names.Annotation] != "" {
			o.note(port, func(s *Sight) *time.Time { return &s.annotated })
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, now any) { seen(now) }})
	if err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return ctx.Err()
	}
	return nil
}

func (o *observer) close() { o.db.Close() }

// note records the first time of an event.
func (o *observer) note(port string, field func(*Sight) *time.Time) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.sights[port]
	if s == nil {
		s = &Sight{}
		o.sights[port] = s
	}
	if at := field(s); at.IsZero() {
		*at = now
		o.count(s, at)
	}
}

// count counts a pod of ours as complete at the time at.
func (o *observer) count(s *Sight, at *time.Time) {
	if s.Begun.IsZero() || s.Done().IsZero() || at == &s.appeared {
		return
	}
	if o.got++; o.got == o.want {
		close(o.arrived)
	}
}

// Expect clears all sights and waits for n pods from now on.
func (o *observer) Expect(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sights, o.want, o.got, o.arrived = map[string]*Sight{}, n, 0, make(chan struct{})
}

// begin records the start of a pod's creation.
func (o *observer) begin(port string) {
	o.note(port, func(s *Sight) *time.Time { return &s.Begun })
}

// Wait returns the sights of the created pods, when all expected pods are complete.
func (o *observer) Wait(ctx context.Context) ([]Sight, error) {
	select {
	case <-o.arrived:
	case <-ctx.Done():
	case <-time.After(Patience):
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []Sight
	for _, s := range o.sights {
		if !s.Begun.IsZero() {
			all = append(all, *s)
		}
	}
	if o.got < o.want {
		return all, fmt.Errorf("%d of %d pods have no port or no annotation after %s: %w", o.want-o.got, o.want, Patience, context.Cause(ctx))
	}
	return all, nil
}
