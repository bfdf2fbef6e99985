package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// downAfter is how long a part must fail before the gateways that need it are declared down.
const downAfter = 3 * time.Second

// neededBy are the modes of gateways, each with the parts needed to forward packets.
func neededBy() map[string][]string {
	return map[string][]string{names.BridgeMode: {partFlows}, names.LocalMode: {partLocal, partForwarding}}
}

// errPodsUnknown does not mean that a local gateway fails: gateway-init has made its rules.
var errPodsUnknown = errors.New("the subnets of pods are not known: run \"ovn-k8s-overlay gateway-init --local\" again")

// A trial is the result of the last try to update a part.
type trial struct {
	failed error
	since  time.Time // start of the first of the failed tries in a row
}

// tried records the result of a part, and judges the gateways that need it, now and after downAfter.
func (e *engine) tried(part string, began time.Time, err error) {
	before := e.trials[part]
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, errPodsUnknown):
		return
	case err == nil:
		e.trials[part] = trial{}
	case before.failed == nil:
		e.trials[part] = trial{err, began}
		time.AfterFunc(time.Until(began.Add(downAfter)), func() { e.send(e.judge) })
	default:
		e.trials[part] = trial{err, before.since}
	}
	e.judge()
}

// A verdict says whether a gateway can forward packets.
type verdict int

const (
	undecided verdict = iota // keep the declared state
	up
	down
)

// judge updates the declarer: it is an event.
func (e *engine) judge() []string {
	e.declarer.set(e.verdicts())
	return nil
}

// verdicts returns the verdict for each mode of gateways, and the reason if packets cannot be forwarded.
func (e *engine) verdicts() (verdicts map[string]verdict, why map[string]error) {
	verdicts, why = map[string]verdict{}, map[string]error{}
	for mode, parts := range neededBy() {
		shares := e.ports.shared != ""
		switch {
		case mode == names.LocalMode && e.ports.local.Name == "" || mode == names.BridgeMode && !shares:
			verdicts[mode] = up // no such gateway
			continue
		case mode == names.BridgeMode && e.ports.inside.Name == "":
			verdicts[mode], why[mode] = down, fmt.Errorf("bridge %s is shared, but not served: start this program with --physical-bridge=%s and --physical-interface", e.ports.shared, e.ports.shared)
			continue
		}
		v := up
		for _, part := range parts {
			t, tried := e.trials[part]
			switch {
			case t.failed != nil && time.Since(t.since) >= downAfter:
				v, why[mode] = down, t.failed
			case (!tried || t.failed != nil) && v == up:
				v = undecided
			}
		}
		verdicts[mode] = v
	}
	return verdicts, why
}

// A declarer writes the gateways of this host that cannot forward packets into ovn-cms-options, so that packets of
// pods go to others.
type declarer struct {
	sw   *vswitch.Switch
	log  *logrus.Entry
	wake chan struct{}

	mu       sync.Mutex // guards the following fields
	verdicts map[string]verdict
	why      map[string]error // by mode
	declared []string         // modes
}

func newDeclarer(sw *vswitch.Switch, log *logrus.Entry) *declarer {
	return &declarer{sw: sw, log: log, wake: make(chan struct{}, 1)}
}

// set replaces the verdicts, and wakes run if they differ.
func (d *declarer) set(verdicts map[string]verdict, why map[string]error) {
	d.mu.Lock()
	same := maps.Equal(d.verdicts, verdicts)
	d.verdicts, d.why = verdicts, why
	d.mu.Unlock()
	if !same {
		d.look()
	}
}

// look makes run compare again.
func (d *declarer) look() {
	select {
	case d.wake <- struct{}{}:
	default: // a wake-up is already waiting
	}
}

// run writes until ctx ends. It also compares after each change of the database: an operator may edit the option.
func (d *declarer) run(ctx context.Context) {
	defer d.sw.OnChange(d.look)()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		if kube.Retry(ctx, func() error { return d.declare(ctx) }, func(err error) {
			if err.Error() != said {
				said = err.Error()
				d.log.Warnf("trying again: %v", err)
			}
		}) != nil {
			return
		}
		said = ""
	}
}

func (d *declarer) declare(ctx context.Context) error {
	d.mu.Lock()
	verdicts, why := d.verdicts, d.why
	d.mu.Unlock()
	if verdicts == nil {
		return nil
	}
	var before, now []string
	_, err := d.sw.EditCMSOption(ctx, names.GatewayDownOption, func(was string) string {
		before, now = names.SplitModes(was), nil
		for mode, v := range verdicts {
			if v == down || v == undecided && slices.Contains(before, mode) {
				now = append(now, mode)
			}
		}
		slices.Sort(now)
		return names.JoinModes(now)
	})
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.declared = now
	d.mu.Unlock()
	for _, mode := range now {
		if !slices.Contains(before, mode) {
			d.log.Warnf("gateway of this host (%s): down, other gateways get the packets of pods: %v", mode, why[mode])
		}
	}
	for _, mode := range before {
		if !slices.Contains(now, mode) {
			d.log.Infof("gateway of this host (%s): forwards packets again", mode)
		}
	}
	return nil
}

// String lists the modes declared down, "none" without any.
func (d *declarer) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.declared) == 0 {
		return "none"
	}
	return strings.Join(d.declared, ", ")
}
