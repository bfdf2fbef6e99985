package world

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
)

const (
	// attemptTimeout bounds the retries of one Attempt.
	attemptTimeout = 20 * time.Second
	// waysAtOnce is the number of concurrent tries.
	waysAtOnce = 64
)

// An Endpoint is a client or a server: a pod or a host.
type Endpoint struct {
	// Name is the endpoint's answer as a server.
	Name string
	// Label replaces the name in tables, if set.
	Label string
	// Netns is the path of its network namespace.
	Netns string
	// Addresses has at most one address of each family.
	Addresses []netip.Addr
}

// A Attempt is a request over the network and its expected answer.
type Attempt struct {
	// Row and Column are its position in Table.
	Row, Column string
	// From sends the request to Address. Network is "tcp", "udp" or "icmp".
	From    Endpoint
	Network string
	Address netip.AddrPort
	// Source is the client's local address, if it matters.
	Source netip.Addr
	// Answers are the acceptable servers.
	Answers []Endpoint
	// Seen are the client addresses acceptable to the test, as seen by the server, of either family.
	Seen []netip.Addr
	// Names are the texts for those addresses in Table; others are shown as "ok".
	Names map[netip.Addr]string

	// SeenAs is the client address seen by the server, if there was an answer.
	SeenAs netip.Addr
	// Err is nil if the request succeeded as expected.
	Err error
}

// String describes w.
func (w Attempt) String() string {
	return fmt.Sprintf("%s to %s (%s %v)", w.Row, w.Column, w.Network, w.Address)
}

// AwaitPod waits until a pod is running, and returns it as an Endpoint.
func (w *World) AwaitPod(ctx context.Context, namespace, name string) (Endpoint, error) {
	pod, err := w.Kube.AwaitPod(ctx, namespace, name, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	if err != nil {
		return Endpoint{}, err
	}
	node := w.Node(pod.Spec.NodeName)
	if node == nil || node.Kubelet == nil {
		return Endpoint{}, fmt.Errorf("looking for pod %s/%s on %q: %w", namespace, name, pod.Spec.NodeName, errNoSandbox)
	}
	s := node.Kubelet.Sandbox(namespace, name)
	if s == nil {
		return Endpoint{}, fmt.Errorf("looking for pod %s/%s on %q: %w", namespace, name, pod.Spec.NodeName, errNoSandbox)
	}
	return Endpoint{Name: namespace + "/" + name, Netns: s.Netns, Addresses: s.Addresses}, nil
}

// Matrix returns a Attempt from each of from to each address of each of to, by each
// protocol. Servers must see the client's own address.
func Matrix(from, to []Endpoint) []Attempt {
	var attempts []Attempt
	for _, f := range from {
		for _, t := range to {
			attempts = append(attempts, Attempts(f, t, f.Addresses)...)
		}
	}
	return attempts
}

// Attempts returns a Attempt from an endpoint to each address of another one, by each
// protocol. Servers must see one of the addresses in seen.
func Attempts(from, to Endpoint, seen []netip.Addr) []Attempt {
	var attempts []Attempt
	for _, a := range to.Addresses {
		for _, network := range []string{"icmp", "udp", "tcp"} {
			attempts = append(attempts, Attempt{
				Row: from.short(), Column: to.short(), From: from, Network: network,
				Address: probe.Address(a, kubelet.DefaultPort), Answers: []Endpoint{to}, Seen: seen,
			})
		}
	}
	return attempts
}

// Try sends the requests of attempts, retrying each until attemptTimeout, and records
// SeenAs and Err in attempts. It returns the failed ones.
func Try(ctx context.Context, attempts []Attempt) (failed []Attempt) {
	var wg sync.WaitGroup
	places := make(chan struct{}, waysAtOnce)
	for i := range attempts {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			attempts[i].SeenAs, attempts[i].Err = attempts[i].try(ctx)
		})
	}
	wg.Wait()
	for _, w := range attempts {
		if w.Err != nil {
			failed = append(failed, w)
		}
	}
	return failed
}

// Try is like the function Try, but repeats failed attempts after ForgetFlows. It
// records results in attempts only; the returned error is about the hosts.
func (w *World) Try(ctx context.Context, attempts []Attempt) error {
	failed := Try(ctx, attempts)
	if len(failed) == 0 {
		return nil
	}
	w.log("%v and %d more: %v: trying again with an empty cache of flows", failed[0], len(failed)-1, failed[0].Err)
	if err := w.ForgetFlows(ctx); err != nil {
		return err
	}
	Try(ctx, failed)
	for i := range attempts {
		if attempts[i].Err != nil {
			attempts[i], failed = failed[0], failed[1:]
		}
	}
	return nil
}

func (w Attempt) try(ctx context.Context) (seen netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit.Of(attemptTimeout))
	defer cancel()
	p := probe.Probe{Netns: w.From.Netns, Network: w.Network, Address: w.Address, Source: w.Source}
	answer, err := p.Until(ctx)
	if err != nil || w.Network == "icmp" { // an echo reply has no text
		return seen, err
	}
	name, client, err := probe.Answer(answer)
	if err != nil {
		return seen, err
	}
	return client.Addr(), w.judge(name, client.Addr())
}

// judge checks that an expected server answered and saw an expected address.
func (w Attempt) judge(name string, seen netip.Addr) error {
	i := slices.IndexFunc(w.Answers, func(e Endpoint) bool { return e.Name == name })
	if i < 0 {
		return fmt.Errorf("answered by %q", name)
	}
	if w.Answers[i].Netns == w.From.Netns && w.Names == nil {
		return nil // the kernel chooses one of the host's own addresses
	}
	if !slices.Contains(w.Seen, seen) {
		return fmt.Errorf("seen as %v, not as one of %v", seen, w.Seen)
	}
	return nil
}

// Table formats attempts as one table for each IP family.
func Table(attempts []Attempt) string {
	var tables []string
	for _, family := range []string{"IPv4", "IPv6"} {
		var rows, columns []string
		verdicts := map[[2]string]string{}
		for _, w := range attempts {
			if w.Address.Addr().Is6() != (family == "IPv6") {
				continue
			}
			rows, columns = add(rows, w.Row), add(columns, w.Column)
			at := [2]string{w.Row, w.Column}
			verdicts[at] = w.verdict(verdicts[at])
		}
		if len(rows) > 0 {
			tables = append(tables, table(family, rows, columns, verdicts))
		}
	}
	return strings.Join(tables, "\n")
}

// add appends s to list unless list contains it.
func add(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

func table(title string, rows, columns []string, verdicts map[[2]string]string) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(append([]string{title}, columns...), "\t"))
	for _, r := range rows {
		line := r
		for _, c := range columns {
			line += "\t" + verdicts[[2]string{r, c}]
		}
		fmt.Fprintln(t, line)
	}
	_ = t.Flush() // into memory
	return b.String()
}

// short is the endpoint's label, or its name without the usual namespace.
func (e Endpoint) short() string { return cmp.Or(e.Label, strings.TrimPrefix(e.Name, "default/")) }

// verdict merges the result of w into the text of its table cell.
func (w Attempt) verdict(others string) string {
	word := "ok"
	if name, ok := w.Names[w.SeenAs]; ok {
		word = name
	}
	switch {
	case w.Err != nil || others == "FAIL":
		return "FAIL"
	case others == "":
		return word
	}
	return strings.Join(add(strings.Split(others, ","), word), ",")
}
