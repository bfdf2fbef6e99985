package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// A history is what the API has said of pods and endpoints, with the time.
type history struct {
	end context.CancelFunc
	f   informers.SharedInformerFactory

	mu    sync.Mutex
	lines []line
	last  map[string]string // by address
}

type line struct {
	at   time.Time
	of   string // address
	text string
}

// watch begins a history.
func watch(ctx context.Context, client kubernetes.Interface) (*history, error) {
	ctx, end := context.WithCancel(ctx)
	h := &history{end: end, f: informers.NewSharedInformerFactory(client, 0), last: map[string]string{}}
	pods, slices := h.f.Core().V1().Pods().Informer(), h.f.Discovery().V1().EndpointSlices().Informer()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: h.pod, UpdateFunc: func(_, o any) { h.pod(o) }, DeleteFunc: h.gone,
	})
	if err == nil {
		_, err = slices.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { h.slice(nil, o) }, UpdateFunc: h.slice})
	}
	h.f.Start(ctx.Done())
	return h, err
}

func (h *history) close() {
	h.end()
	h.f.Shutdown()
}

// add adds a line, unless the last one of the address and kind says the same.
func (h *history) add(address, kind, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last[address+kind] == text {
		return
	}
	h.last[address+kind] = text
	h.lines = append(h.lines, line{time.Now(), address, kind + " " + text})
}

func (h *history) pod(o any) {
	p := o.(*corev1.Pod)
	text := fmt.Sprintf("%s on %s: %s", p.Name, p.Spec.NodeName, p.Status.Phase)
	if p.DeletionTimestamp != nil {
		text += ", deleted"
	}
	for _, a := range p.Status.PodIPs {
		h.add(a.IP, "pod", text)
	}
}

func (h *history) gone(o any) {
	if p, ok := o.(*corev1.Pod); ok {
		for _, a := range p.Status.PodIPs {
			h.add(a.IP, "pod", p.Name+" gone")
		}
	}
}

func (h *history) slice(before, after any) {
	now := map[string]bool{}
	for _, e := range after.(*discoveryv1.EndpointSlice).Endpoints {
		c := e.Conditions
		if c.Ready == nil || c.Serving == nil || c.Terminating == nil {
			continue // the API server's own
		}
		now[e.Addresses[0]] = true
		h.add(e.Addresses[0], "slice", fmt.Sprintf("ready %t, serving %t, terminating %t", *c.Ready, *c.Serving, *c.Terminating))
	}
	if before == nil {
		return
	}
	for _, e := range before.(*discoveryv1.EndpointSlice).Endpoints {
		if !now[e.Addresses[0]] {
			h.add(e.Addresses[0], "slice", "none")
		}
	}
}

// of returns what was said of an address from some time before a moment on.
func (h *history) of(address string, at time.Time) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, l := range h.lines {
		if l.of == address && l.at.After(at.Add(-time.Minute)) && l.at.Before(at.Add(15*time.Second)) {
			out = append(out, fmt.Sprintf("%+.3f s %s", l.at.Sub(at).Seconds(), l.text))
		}
	}
	return strings.Join(out, "; ")
}
