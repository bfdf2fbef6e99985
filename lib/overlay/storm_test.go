package overlay

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"ovn-k8s/lib/desired/topology"
)

// stormNodes is the number of nodes joining, unless OVNK8S_BENCH_NODES is set.
const stormNodes = 1000

// BenchmarkStorm has many nodes join at once, 50 connections at a time: the part of minion-init on the Northbound
// database, in one process.
func BenchmarkStorm(b *testing.B) {
	nodes := stormNodes
	if n, err := strconv.Atoi(os.Getenv("OVNK8S_BENCH_NODES")); err == nil {
		nodes = n
	}
	for b.Loop() {
		storm(b, nodes)
	}
}

func storm(b *testing.B, nodes int) {
	c := newCluster(b)
	var transactions, conflicts atomic.Int64
	start := time.Now()
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(50)
	for i := range nodes {
		g.Go(func() error {
			s := newSession(Command{Out: io.Discard, Err: io.Discard})
			defer s.close()
			s.config.NB, s.config.SystemID = []string{c.NB}, fmt.Sprint("id-", i)
			r := request{node: fmt.Sprintf("node-%04d", i), clusters: prefixes("10.0.0.0/8"), subnets: prefixes(fmt.Sprintf("10.%d.%d.0/24", 1+i/256, i%256))}
			s.only = r.node
			if err := s.openNB(ctx); err != nil {
				return err
			}
			if _, err := s.recorded(ctx); err != nil {
				return err
			}
			change := s.join(r, true, func(world, topology.Cluster) error { return nil })
			_, err := s.changeCluster(ctx, topology.NodeUnit(r.node), change)
			transactions.Add(int64(s.nb.Transactions()))
			conflicts.Add(int64(s.conflicts))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(time.Since(start).Seconds(), "s")
	b.ReportMetric(float64(nodes), "nodes")
	b.ReportMetric(float64(conflicts.Load()), "conflicts")
	b.ReportMetric(float64(transactions.Load()), "transactions")
	w, err := newJoiner(b, c, "").readWorld(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if n, ports := len(w.before().Nodes), len(w.routerPorts); n != nodes+1 || ports != nodes+2 {
		b.Errorf("%d nodes are recorded, with %d router ports; want %d and %d", n, ports, nodes+1, nodes+2)
	}
}
