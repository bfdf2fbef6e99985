package main

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/world"
)

// hostPort is the port of the backend in its host's network.
const hostPort = 9090

// servicesTimeout bounds the wait until all nodes have programmed the Services.
const servicesTimeout = time.Minute

// backends are the backends of the Services: a pod, and a hostNetwork pod.
var backends = []struct {
	name string
	port int
}{{"web", kubelet.DefaultPort}, {"hostweb", hostPort}}

// tryServices connects clients of every kind to backends of every kind through
// every frontend, from outside through each gateway. It counts the failures.
func tryServices(ctx context.Context, w *world.World, pods []world.Endpoint, gateways map[string][]netip.Addr, say sayer) (failed int, err error) {
	placement := world.Placement{Node: w.Nodes[1], OtherNode: w.Nodes[2], Near: named(pods, "default/minion1-a"), Far: named(pods, "default/minion2-a")}
	services, err := createServices(ctx, w, placement.Node)
	if err != nil {
		return 0, err
	}
	known, cancel := context.WithTimeout(ctx, limit.Of(servicesTimeout))
	defer cancel()
	if err := w.AwaitServices(known, services); err != nil {
		return 0, err
	}
	say("all nodes know the Services")
	attempts := serviceAttempts(w, services, nil, placement.InsideClients)
	if err := w.Try(ctx, attempts); err != nil {
		return 0, err
	}
	for _, mode := range world.Modes() {
		withdraw, err := w.RouteServices(services, gateways[mode])
		if err != nil {
			return 0, err
		}
		client := w.OutsideClient()
		client.Row += ", " + mode
		through := serviceAttempts(w, services, gateways[mode], func(world.Endpoint) []world.Client { return []world.Client{client} })
		err = w.Try(ctx, through)
		withdraw()
		if err != nil {
			return 0, err
		}
		attempts = append(attempts, through...)
	}
	return tell("into Services", "by "+strings.Join(world.Networks(), ", ")+": whom the backend saw", attempts, say), nil
}

// createServices creates the backends on a node, and a Service for each.
func createServices(ctx context.Context, w *world.World, n *world.Node) (services []world.Service, err error) {
	for i, b := range backends {
		_, err := w.Kube.CreatePod(ctx, "default", b.name, n.Name, func(p *corev1.Pod) {
			p.Labels = map[string]string{world.AppLabel: b.name}
			p.Spec.HostNetwork = b.port == hostPort
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: int32(b.port)}}
		})
		if err != nil {
			return nil, err
		}
		s, err := w.CreateService(ctx, b.name, b.port, i+1, nil)
		if err != nil {
			return nil, err
		}
		services = append(services, s)
	}
	for i, b := range backends {
		pod, err := w.AwaitPod(ctx, "default", b.name)
		if err != nil {
			return nil, err
		}
		services[i].Backends = []world.Endpoint{pod}
	}
	return services, nil
}

// serviceAttempts returns the Attempts from clients to all services. Their rows are named
// after backend and client.
func serviceAttempts(w *world.World, services []world.Service, gateway []netip.Addr, clients func(backend world.Endpoint) []world.Client) (all []world.Attempt) {
	for _, s := range services {
		for _, attempt := range w.ServiceAttempts(s, w.Frontends(s, gateway), clients(s.Backends[0])) {
			attempt.Row = s.Name + " from " + attempt.Row
			all = append(all, attempt)
		}
	}
	return all
}

// named returns the endpoint with this name.
func named(all []world.Endpoint, name string) world.Endpoint {
	return all[slices.IndexFunc(all, func(e world.Endpoint) bool { return e.Name == name })]
}
