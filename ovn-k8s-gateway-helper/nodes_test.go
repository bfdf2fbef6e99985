package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/host"
	"ovn-k8s/test/kubetest"
)

// lateNodes is an API server: its Nodes can be read late, or not at all.
type lateNodes struct {
	mu      sync.Mutex
	held    chan struct{}   // requests for Nodes wait until it is closed; nil: they do not wait
	refused bool            // instead of an answer
	watched map[string]bool // resources with a list received
}

// set is what happens to requests from now on.
func (l *lateNodes) set(held chan struct{}, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.refused, l.watched = held, refused, map[string]bool{}
}

// others reports whether the lists of all other kinds were received.
func (l *lateNodes) others() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watched["services"] && l.watched["endpointslices"] && l.watched["pods"] &&
		(l.watched["servicecidrs"] || !kubetest.Has(kubetest.ServiceCIDRs))
}

func (l *lateNodes) serve(t *testing.T, w *world, port int) {
	t.Helper()
	all, err := cluster.Insecure()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		l.mu.Lock()
		held, refused := l.held, l.refused
		if q := r.URL.Query(); q.Get("watch") != "" && q.Get("sendInitialEvents") == "" {
			l.watched[resource] = true
		}
		l.mu.Unlock()
		if resource == "nodes" && refused {
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusForbidden)
			fmt.Fprint(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nodes is forbidden","reason":"Forbidden","code":403}`)
			return
		}
		if resource == "nodes" && held != nil {
			select {
			case <-held:
			case <-r.Context().Done():
			}
		}
		all.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	stop, err := w.fabric.Forward(port, strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
}

// Some rules depend on the own Node, as those for an ExternalIP without an interface. After a restart, which may learn the Nodes
// last, all rules stay until the Nodes are known. A helper that must not read Nodes does without them.
func TestRulesWaitForTheNodes(t *testing.T) {
	const external, port = "203.0.113.9", 8080
	w := newWorld(t)
	w.web()
	nodes := cluster.Client().CoreV1().Nodes()
	n, err := nodes.Create(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nodes.Delete(context.Background(), n.Name, metav1.DeleteOptions{}) })
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: w.IPv4().String()}, {Type: corev1.NodeExternalIP, Address: external}}
	if _, err := nodes.UpdateStatus(w.ctx, n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.script(`ovs-vsctl add-port br-int k8s-node1 -- set Interface k8s-node1 type=internal external_ids:iface-id=k8s-node1
		ip link set k8s-node1 up; ip addr add 10.128.1.2/24 dev k8s-node1`)
	api := &lateNodes{}
	api.set(nil, false)
	api.serve(t, w, port)
	args := []string{fmt.Sprintf("--k8s-api-server=http://%v:%d", host.FabricIPv4(), port), "--node-name=node1", "-vconsole:info"}
	rules := func() string {
		return regexp.MustCompile(`(?m)^(#|:).*$`).ReplaceAllString(w.script(host.RulesScript), "") // without dates and counters
	}
	has := func(text string) func() bool { return func() bool { return strings.Contains(rules(), text) } }
	const services = "dport 30082"
	known := func() bool { return strings.Contains(w.appctl("reconcile/show"), "services known   true") }

	p := w.launchBare(append(args, "--pidfile")...)
	w.eventually("rules for the ExternalIP", has(external))
	w.eventually("a route to Services", func() bool { return routed(w) })
	w.eventually("no change is left", func() bool {
		out := w.appctl("rules/show")
		return strings.Contains(out, external) && !strings.Contains(out, "\n! ")
	})
	p.Stop()

	before, held := rules(), make(chan struct{})
	api.set(held, false)
	p = w.launchBare(append(args, "--pidfile")...)
	w.eventually("all but the Nodes are known", func() bool { return api.others() && strings.Contains(w.appctl("services/show"), "default/web") })
	if known() {
		t.Error("it does not wait for the Nodes")
	}
	close(held)
	w.eventually("the Nodes are known", known)
	if now := rules(); now != before || strings.Contains(p.Output(), "rules changed") {
		t.Errorf("a restart changes rules:\n%s\nbefore:\n%s\nlog:\n%s", now, before, p.Output())
	}
	p.Stop()

	api.set(nil, true)
	w.launchBare(append(args, "--pidfile")...)
	w.eventually("nothing else is awaited", known)
	w.eventually("no rule for the ExternalIP", func() bool { return !has(external)() })
	if !has(host.PerFirewall(services, "tcp . 30082"))() || !routed(w) {
		t.Errorf("without Nodes:\n%s", rules())
	}
	api.set(nil, false)
	w.eventually("rules for the ExternalIP, once Nodes may be read", has(external))
}
