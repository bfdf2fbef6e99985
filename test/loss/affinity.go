package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

const (
	affinityTimeout = 10 // seconds
	// portsOfAddress are the local ports for one address of the Service. A port used for another one cannot be used
	// again at once, in either family.
	portsOfAddress = 1000
)

// affinity has each of many clients open one connection to a Service with ClientIP affinity, several more, and
// after the timeout another one: each needs one SYN, and all reach one endpoint.
func affinity(ctx context.Context, f *field) error {
	if err := f.deploy(ctx, preStop); err != nil {
		return err
	}
	sticky, err := f.w.CreateService(ctx, "sticky", kubelet.DefaultPort, 2, func(s *corev1.Service) {
		seconds := int32(affinityTimeout)
		s.Spec.Selector = map[string]string{world.AppLabel: app}
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	})
	if err != nil {
		return err
	}
	clients, err := f.manyClients(ctx)
	if err != nil {
		return err
	}
	if err := f.settle(ctx, []place{{"a pod", f.clients["master"].Netns, probe.Address(sticky.ClusterIPs[0], world.ServicePort)}}); err != nil {
		return err
	}
	for i, a := range sticky.ClusterIPs {
		if err := f.stay(ctx, clients, a, firstPort+portsOfAddress*i); err != nil {
			return err
		}
	}
	return nil
}

// manyClients makes the clients.
func (f *field) manyClients(ctx context.Context) ([]world.Endpoint, error) {
	f.say("making %d clients", f.affinityClients)
	clients := make([]world.Endpoint, f.affinityClients)
	var g errgroup.Group
	g.SetLimit(20)
	for i := range clients {
		g.Go(func() (err error) {
			name := fmt.Sprint("client-", i)
			if _, err := f.w.Kube.CreatePod(ctx, namespace, name, f.w.Nodes[i%len(f.w.Nodes)].Name, nil); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			clients[i], err = f.w.AwaitPod(ctx, namespace, name)
			return err
		})
	}
	return clients, g.Wait()
}

// stay asks from all clients, by turns, from local ports at firstPort and above. It prints the clients with a failed, late or
// moved connection.
func (f *field) stay(ctx context.Context, clients []world.Endpoint, to netip.Addr, firstPort int) error {
	home := make([]string, len(clients))
	for round := range 1 + f.rounds {
		if round > 0 {
			wait(ctx, affinityTimeout*time.Second+time.Second)
		}
		a := &asker{pending: map[*try]bool{}, report: f.explain, end: func() {}, endInspection: func() {}}
		moved := 0
		for again := range 3 {
			for i, c := range clients {
				t := &try{place: place{c.Name, c.Netns, probe.Address(to, world.ServicePort)}, port: firstPort + 10*round + again}
				a.once(ctx, t)
				if home[i] != "" && t.err == nil && t.by != home[i] {
					moved++
					f.say("%s: %s answered, before %s", c.Name, t.by, home[i])
				}
				if t.err == nil {
					home[i] = t.by
				}
			}
		}
		f.result(a, fmt.Sprintf("%v, turn %d, %d clients three times, %d moved", to, round, len(clients), moved))
	}
	return ctx.Err()
}
