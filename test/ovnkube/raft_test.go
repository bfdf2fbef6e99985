package ovnkube

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/limit"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/world"
)

// AC-102: with both databases as RAFT clusters of three, the leader of each is killed while pods are created. The master follows
// to the new leader, and writes nothing twice. AC-103: the same while the Service ovnkube-db loses the killed member, and gets it
// back. At last a new member without data takes the place of a lost leader, as in install.md.
func TestRAFT(t *testing.T) {
	c := newCluster(t, world.Options{Clustered: true})
	c.run()
	var all []string
	for db, k := range map[string]*ovntest.Cluster{"NB": c.Central.NBCluster, "SB": c.Central.SBCluster} {
		s := c.stream(strings.ToLower(db))
		leader, err := k.Leader()
		c.must(err)
		k.Stop(leader)
		killed := time.Now()
		t.Logf("killed member %d of %s", leader, db)
		all = append(all, c.prompt("after-"+strings.ToLower(db), killed)...)
		c.must(k.Start(leader))
		all = append(all, s.stop()...)
	}
	s := c.stream("moved")
	leader, err := c.Central.NBCluster.Leader()
	c.must(err)
	for _, lost := range []int{leader, -1} { // -1: it is back
		changed := c.serveDatabases(lost)
		if lost >= 0 {
			c.Central.NBCluster.Stop(lost)
			c.Central.SBCluster.Stop(lost)
		}
		c.everyNode(c.remotes(6642, lost), "get", "Open_vSwitch", ".", "external_ids:ovn-remote")
		c.everyNode(c.remotes(6641, lost), "get", "Open_vSwitch", ".", "external_ids:ovn-nb")
		all = append(all, c.prompt(fmt.Sprintf("service-%d", lost+1), changed)...)
		if lost >= 0 {
			c.must(c.Central.NBCluster.Start(lost))
			c.must(c.Central.SBCluster.Start(lost))
		}
	}
	replaced := time.Now()
	for _, k := range []*ovntest.Cluster{c.Central.NBCluster, c.Central.SBCluster} {
		leader, err := k.Leader()
		c.must(err)
		c.must(k.Replace(leader))
	}
	all = append(all, c.prompt("replaced", replaced)...)
	all = append(all, s.stop()...)
	if failed := c.failures(); len(failed) > 0 {
		t.Errorf("%d failed sandboxes: %q", len(failed), failed)
	}
	leader, err = c.Central.NBCluster.Leader()
	c.must(err)
	log, err := c.Central.NBCluster.Log(leader)
	c.must(err)
	c.writtenOnce(log, all)
	c.must(c.Check(c.ctx))
}

// A stream creates pods on all nodes, until its end.
type stream struct {
	*cluster
	group *errgroup.Group
	end   context.CancelFunc
	names []string
}

// stream begins to create pods, five a second, and fewer on a slow machine: the subnets need an address for each until its end.
func (c *cluster) stream(prefix string) *stream {
	ctx, end := context.WithCancel(c.ctx)
	s := &stream{cluster: c, group: &errgroup.Group{}, end: end}
	c.Cleanup(end)
	s.group.Go(func() error {
		tick := time.NewTicker(limit.Of(200 * time.Millisecond))
		defer tick.Stop()
		for i := 0; ; i++ {
			name := fmt.Sprintf("%s-%d", prefix, i)
			if err := c.create(c.ctx, name, c.Nodes[i%len(c.Nodes)].Name); err != nil {
				return err
			}
			s.names = append(s.names, name)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
	return s
}

// stop ends the stream, waits until all its pods run, and returns their names.
func (s *stream) stop() []string {
	s.Helper()
	s.end()
	s.must(s.group.Wait())
	for _, name := range s.names {
		s.await(name)
	}
	return s.names
}

// prompt creates a pod on each node, which must run within 30 s (AC-102), and logs how long they took since an event.
func (c *cluster) prompt(prefix string, since time.Time) (names []string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, limit.Of(30*time.Second))
	defer cancel()
	for i, n := range c.Nodes {
		name := fmt.Sprintf("%s-%d", prefix, i)
		c.must(c.create(ctx, name, n.Name))
		names = append(names, name)
	}
	for _, name := range names {
		if _, err := c.AwaitPod(ctx, "default", name); err != nil {
			c.Fatalf("pod %s does not run within 30 s: %v", name, err)
		}
	}
	c.Logf("%s: pods run %v after the event", prefix, time.Since(since).Round(10*time.Millisecond))
	return names
}

// serveDatabases has the Service ovnkube-db list all hosts but one, and returns the time.
func (c *cluster) serveDatabases(lost int) time.Time {
	c.Helper()
	north, south, northPort, southPort := "north", "south", int32(6641), int32(6642)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "ovnkube-db-x", Labels: map[string]string{discoveryv1.LabelServiceName: "ovnkube-db"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &north, Port: &northPort}, {Name: &south, Port: &southPort}},
	}
	for i, n := range c.Nodes {
		if i != lost {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{n.IPv4().String()}})
		}
	}
	api := c.Kube.Client().DiscoveryV1().EndpointSlices("ovn-kubernetes")
	_, err := api.Update(c.ctx, slice, metav1.UpdateOptions{})
	if err != nil {
		_, err = api.Create(c.ctx, slice, metav1.CreateOptions{})
	}
	c.must(err)
	return time.Now()
}

// remotes are the addresses of all hosts but one, sorted.
func (c *cluster) remotes(port, lost int) string {
	var all []string
	for i, n := range c.Nodes {
		if i != lost {
			all = append(all, fmt.Sprintf("tcp:%v:%d", n.IPv4(), port))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

var (
	entryIndex   = regexp.MustCompile(`(?m)^ index: (\d+)$`)
	insertedPort = regexp.MustCompile(`table Logical_Switch_Port insert row "default_([^"]+)"`)
)

// writtenOnce fails unless a log of the Northbound database has one insertion of each pod's port. A killed leader keeps entries
// without a majority: later in the log, entries of the same index replace them (Raft, section 5.3). The log of a database
// without a cluster has no indexes: each of its records counts.
func (c *cluster) writtenOnce(log string, pods []string) {
	c.Helper()
	entries := map[string]string{} // by index, or by record
	for i, record := range strings.Split(log, "\nrecord ") {
		key := fmt.Sprint("record ", i)
		if m := entryIndex.FindStringSubmatch(record); m != nil {
			key = m[1]
		}
		entries[key] = record
	}
	times := map[string]int{}
	for _, record := range entries {
		for _, m := range insertedPort.FindAllStringSubmatch(record, -1) {
			times[m[1]]++
		}
	}
	for _, p := range pods {
		if times[p] != 1 {
			c.Errorf("the port of pod %s was inserted %d times", p, times[p])
		}
	}
	c.Logf("%d pods", len(pods))
}
