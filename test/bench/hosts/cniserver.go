package hosts

import (
	"context"
	"fmt"

	"ovn-k8s/test/bench/report"
	"ovn-k8s/test/bench/run"
	"ovn-k8s/test/host"
	"ovn-k8s/test/reaper"
	"ovn-k8s/test/world"
)

// MeasureCNIServer calls the shim with the CNI server of ovnkube, and the stand-alone plugin as the yardstick, for the same pods
// of a node of a whole cluster.
func MeasureCNIServer(ctx context.Context, b *run.Bench) error {
	w, end, err := b.World(ctx, "cniserver", world.Options{})
	if err != nil {
		return err
	}
	defer end()
	config := plugins(b)[0].config
	n := newCNINode(b, w.Nodes[1].Host, [2]plugin{
		{"ours", b.Programs.Path("ovn-k8s-cni-shim"), config}, {"yardstick", b.Programs.Path("ovn-k8s-cni-overlay"), config},
	}, true)
	if err := n.pods(ctx, w.Kube); err != nil {
		return err
	}
	server, err := reaper.Start(n.host.Command, b.Programs.Path("cniserver"), n.host.Name, "/var/log/cniserver.log")
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := n.compare(ctx); err != nil { // the shim waits for the server
		return fmt.Errorf("%w (server: %v)", err, server.Err())
	}
	return n.tellServer(ctx)
}

// tellServer adds the results to the report.
func (n *cniNode) tellServer(ctx context.Context) error {
	var entering []float64
	for range 20 {
		cmd := n.host.Command("true")
		if _, _, err := host.RunCommand(ctx, cmd); err != nil {
			return err
		}
		entering = append(entering, cpuOf(cmd))
	}
	nsenter := report.Median(entering)
	for _, way := range []string{oneByOne, together} {
		var ours, yardstick [2][]float64 // p50 and p99 of each round
		for _, r := range n.took[way] {
			for i, p := range []float64{50, 99} {
				ours[i] = append(ours[i], report.Percentile(r["ours"], p))
				yardstick[i] = append(yardstick[i], report.Percentile(r["yardstick"], p))
			}
		}
		name := "CNI ADD by the server of ovnkube, " + way
		n.Report.Beside(name+", p50", "ms", 1, ours[0], yardstick[0]).Explain("yardstick: the stand-alone plugin")
		n.Report.Beside(name+", p99", "ms", 1, ours[1], yardstick[1])
	}
	n.Report.Alone("CNI ADD by the server of ovnkube, CPU time of the shim", "ms", maxShimCPU, report.Median(n.used["ours"])-nsenter).
		Explain("of the stand-alone plugin %.1f ms; without %.1f ms of nsenter", report.Median(n.used["yardstick"])-nsenter, nsenter)
	return nil
}

// maxShimCPU is the most CPU time of a call of the shim, in milliseconds.
const maxShimCPU = 5
