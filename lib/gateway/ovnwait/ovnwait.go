// Package ovnwait keeps connections of pods during a restart of ovs-vswitchd: it has ovs-vswitchd keep the flows in the
// kernel until br-int has its flows again, and has ovn-controller write these at once. So it does after an ovn-controller that
// deleted its tunnels.
package ovnwait

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ofctl"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/ovsdb/vswitch/flowrestore"
)

const (
	// endAfter is the time from the return of the flows until names.SuspendedWait is removed. Before connecting to a restarted
	// ovsdb-server, ovn-controller pauses for 1 s, and twice as long each time up to 8 s, unless a row changes that long
	// after it has connected (reconnect_disconnected in lib/reconnect.c of Open vSwitch). On a quiet node only this row
	// changes.
	endAfter = 10 * time.Second
	// startTime is the time that an ovn-controller without tunnels has to start: then it gets its wait back in any case.
	startTime = time.Minute
	// holdTime bounds the time for which ovs-vswitchd keeps the kernel's flows and forwards no packet without one, and before
	// that the time to wait for its start.
	// ovn-controller connects again 1, 3 and 7 s after the end of ovs-vswitchd (rconn_run in lib/rconn.c).
	holdTime = 10 * time.Second
	// writeTimeout bounds an attempt to hold or release flows: ovsdb-server may have ended, too.
	writeTimeout = time.Second
	// lookTimeout bounds an attempt of the rest, since releasing waits for it: ovs-vswitchd may hang.
	lookTimeout = 10 * time.Second
	// retryInterval is the time until a failed attempt is repeated.
	retryInterval = 250 * time.Millisecond
)

// A Guard follows restarts of ovs-vswitchd and ovn-controller, see flowrestore.Hold and ovncontroller.Settings.SuspendWait.
type Guard struct {
	sw     *vswitch.Switch
	bridge ofctl.Bridge
	log    *logrus.Entry
	// up is whether ovs-vswitchd ran, empty whether br-int had no flows, when they were looked at last.
	up, empty bool
	held      bool // whether ovs-vswitchd may have been told to keep flows
	// tunnels is whether there were some when they were looked at last, lost whether they went, until end.
	tunnels, lost bool
	// end tells when to remove names.SuspendedWait, release ends the time in which ovs-vswitchd keeps flows. again repeats a
	// look that failed.
	end, release, again *time.Timer
	// problem was logged last, "" after success.
	problem string
}

// New returns a Guard of br-int.
func New(sw *vswitch.Switch, runDir string, log *logrus.Entry) *Guard {
	return &Guard{sw: sw, bridge: ofctl.Bridge{RunDir: runDir, Name: names.IntegrationBridge}, log: log}
}

// Run follows restarts until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	changed, rows := make(chan struct{}, 1), make(chan struct{}, 1)
	rows <- struct{}{}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { g.bridge.FollowFirst(ctx, func() { signal(changed) }) })
	defer g.sw.OnChange(func() { signal(rows) })()
	// They also end what an earlier process has left.
	g.end, g.release, g.again = time.NewTimer(endAfter), time.NewTimer(holdTime), time.NewTimer(0)
	defer g.end.Stop()
	defer g.release.Stop()
	defer g.again.Stop()
	defer func() {
		if g.held { // nobody else would
			g.releaseFlows(context.WithoutCancel(ctx))
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			g.try(ctx, g.look, g.again)
		case <-g.again.C:
			g.try(ctx, g.look, g.again)
		case <-rows:
			if g.lostTunnels() || g.empty { // a wait may have been set meanwhile
				g.try(ctx, g.look, g.again)
			}
		case <-g.release.C:
			g.releaseFlows(ctx)
		case <-g.end.C:
			g.try(ctx, g.endWait, g.end)
		}
	}
}

// signal sends to a channel with room for one, unless a signal is already waiting.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// try makes an attempt for a bounded time; if it fails, again starts the next one.
func (g *Guard) try(ctx context.Context, attempt func(context.Context) error, again *time.Timer) {
	select { // it must not wait for an attempt
	case <-g.release.C:
		g.releaseFlows(ctx)
	default:
	}
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	g.report(ctx, attempt(bounded), again)
}

// report logs a failure, once for attempts in a row, and has again start the next attempt.
func (g *Guard) report(ctx context.Context, err error, again *time.Timer) {
	if err == nil {
		g.problem = ""
		return
	}
	again.Reset(retryInterval)
	if text := err.Error(); text != g.problem && ctx.Err() == nil {
		g.problem = text
		g.log.Warnf("trying again: %v", err)
	}
}

// lostTunnels looks at the tunnels, and reports whether all have gone. An ovn-controller that ends for good deletes them, and so
// it does in a restart by the unit of its package. Then br-int's flows to other hosts are of no use: they do not know the
// tunnels of the next ovn-controller. This one has its wait back some time after it made its tunnels.
func (g *Guard) lostTunnels() bool {
	n, ok := g.sw.Tunnels()
	if !ok || g.tunnels == (n > 0) {
		return false
	}
	g.tunnels = n > 0
	switch {
	case !g.tunnels:
		g.lost = true
		g.end.Reset(startTime)
		return true
	case g.lost:
		g.end.Reset(endAfter)
	}
	return false
}

// look looks at br-int, and does what a change demands.
func (g *Guard) look(ctx context.Context) error {
	down, empty, err := g.bridge.Down(), false, error(nil) // Down is faster than Empty, and then each millisecond counts
	if !down {
		empty, err = g.bridge.Empty(ctx)
		down = errors.Is(err, ofctl.ErrDown)
	}
	if down {
		if g.up {
			g.holdFlows(ctx)
		}
		g.up = false
		return nil // FollowFirst reports when the bridge is back
	}
	if err != nil {
		return err
	}
	if g.empty && !empty {
		g.end.Reset(endAfter)
	}
	switch {
	case !empty && (g.empty || !g.up):
		g.releaseFlows(ctx)
	case g.held && !g.up:
		g.release.Reset(holdTime)
	}
	g.up, g.empty = true, empty
	return g.adjustWait(ctx, empty)
}

// adjustWait has ovn-controller wait if br-int has flows to keep. It has its wait back as soon as there are some: an upgrade
// restarts ovn-controller a few seconds after ovs-vswitchd.
func (g *Guard) adjustWait(ctx context.Context, empty bool) error {
	if !empty && !g.lost {
		return g.sw.Controller().ResumeWait(ctx)
	}
	changed, err := g.sw.Controller().SuspendWait(ctx)
	switch {
	case changed && empty:
		g.log.Infof("%s has no flows: ovn-controller writes them without waiting", g.bridge.Name)
	case changed:
		g.log.Info("ovn-controller has deleted its tunnels: it writes flows without waiting when it starts")
	}
	return err
}

// holdFlows has the next ovs-vswitchd keep the kernel's flows.
func (g *Guard) holdFlows(ctx context.Context) {
	writing, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	held, err := flowrestore.Hold(writing, g.sw.DB)
	g.held = g.held || held || err != nil
	g.release.Reset(holdTime)
	switch {
	case err != nil:
		g.log.Infof("ovs-vswitchd ended, and may delete the kernel's flows at its start: %v", err)
	case held && !g.kernelHasFlows(ctx):
		g.releaseFlows(ctx)
	case held:
		g.log.Infof("ovs-vswitchd ended: it keeps the kernel's flows until %s has its own", g.bridge.Name)
	}
}

// kernelHasFlows reports whether there is something to keep: ovs-vswitchd may have deleted its flows before its end. This
// takes longer than a database write, so it comes second.
func (g *Guard) kernelHasFlows(ctx context.Context) bool {
	has, err := ofctl.KernelHasFlows(ctx, g.bridge.RunDir)
	if err != nil {
		g.log.Warn(err)
	}
	return has
}

// releaseFlows ends that. If it cannot, it tries again later.
func (g *Guard) releaseFlows(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	released, err := flowrestore.Release(bounded, g.sw.DB)
	g.held = g.held && err != nil
	g.report(ctx, err, g.release)
	if released {
		g.log.Info("ovs-vswitchd keeps the kernel's flows no longer")
	}
}

// endWait gives ovn-controller its wait back in any case, and forgets it, if br-int has flows; otherwise later.
func (g *Guard) endWait(ctx context.Context) error {
	empty, err := g.bridge.Empty(ctx)
	if empty || errors.Is(err, ofctl.ErrDown) {
		g.end.Reset(endAfter)
		return nil
	}
	if err == nil {
		err = g.sw.Controller().EndWait(ctx)
	}
	if err == nil {
		g.lost = false
	}
	return err
}
