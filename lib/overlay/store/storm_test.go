package store

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/overlay/progress"
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
			r := request(fmt.Sprintf("node-%04d", i), fmt.Sprintf("10.%d.%d.0/24", 1+i/256, i%256))
			s := New(config.Config{NB: []string{c.NB}}, progress.New(false, io.Discard, io.Discard), false, r.Name)
			defer s.Close()
			if err := s.Open(ctx); err != nil {
				return err
			}
			if _, err := s.Topology(ctx); err != nil {
				return err
			}
			_, err := s.Change(ctx, topology.NodeUnit(r.Name), r.Join(nil))
			transactions.Add(int64(s.db.Transactions()))
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
	w, err := newJoiner(b, c, "").readState(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if n, ports := len(w.Topology().Nodes), len(w.RouterPorts); n != nodes+1 || ports != nodes+2 {
		b.Errorf("%d nodes are recorded, with %d router ports; want %d and %d", n, ports, nodes+1, nodes+2)
	}
}
