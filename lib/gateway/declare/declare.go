// Package declare decides which gateways of this host cannot forward packets, and tells the watcher.
package declare

import (
	"context"
	"errors"
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

// DownAfter is how long a part must fail before the gateways that need it are declared down.
const DownAfter = 3 * time.Second

// ErrUnknown means that too little is known to try: this is no failure of a gateway.
var ErrUnknown = errors.New("the subnets of pods are not known: run \"ovn-k8s-overlay gateway-init --local\" again")

// A trial is the result of the last try to update a part.
type trial struct {
	failed error
	since  time.Time // start of the first of the failed tries in a row
}

// A verdict says whether a gateway can forward packets.
type verdict int

const (
	undecided verdict = iota // keep the declared state
	up
	down
)

// A Gateway is one mode of gateways of this host.
type Gateway struct {
	Mode   string
	Absent bool     // there is no such gateway
	Broken error    // it cannot forward packets
	Needs  []string // the parts of the node needed to forward packets
}

// A Monitor decides which gateways of this host can forward packets, from the tries to update the parts of the node. The
// goroutine that calls the functions of later owns it.
type Monitor struct {
	Declarer
	trials   map[string]trial // of parts
	gateways func() []Gateway
	later    func(func())
}

// New returns a Monitor of the gateways. later runs a function in the goroutine of the owner.
func New(sw *vswitch.Switch, log *logrus.Entry, gateways func() []Gateway, later func(func())) *Monitor {
	return &Monitor{Declarer: Declarer{sw: sw, log: log, wake: make(chan struct{}, 1)}, trials: map[string]trial{}, gateways: gateways, later: later}
}

// Tried records the result of a part, and decides about the gateways that need it, now and after DownAfter.
func (m *Monitor) Tried(part string, began time.Time, err error) {
	before := m.trials[part]
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknown):
		return
	case err == nil:
		m.trials[part] = trial{}
	case before.failed == nil:
		m.trials[part] = trial{err, began}
		time.AfterFunc(time.Until(began.Add(DownAfter)), func() { m.later(m.update) })
	default:
		m.trials[part] = trial{err, before.since}
	}
	m.update()
}

// update updates the declarer.
func (m *Monitor) update() { m.set(m.verdicts()) }

// verdicts returns the verdict for each mode of gateways, and the reason if packets cannot be forwarded.
func (m *Monitor) verdicts() (verdicts map[string]verdict, why map[string]error) {
	verdicts, why = map[string]verdict{}, map[string]error{}
	for _, g := range m.gateways() {
		switch {
		case g.Absent:
			verdicts[g.Mode] = up
			continue
		case g.Broken != nil:
			verdicts[g.Mode], why[g.Mode] = down, g.Broken
			continue
		}
		v := up
		for _, part := range g.Needs {
			t, tried := m.trials[part]
			switch {
			case t.failed != nil && time.Since(t.since) >= DownAfter:
				v, why[g.Mode] = down, t.failed
			case (!tried || t.failed != nil) && v == up:
				v = undecided
			}
		}
		verdicts[g.Mode] = v
	}
	return verdicts, why
}

// A Declarer writes the gateways of this host that cannot forward packets into ovn-cms-options, so that packets of
// pods go to others.
type Declarer struct {
	sw   *vswitch.Switch
	log  *logrus.Entry
	wake chan struct{}

	mu       sync.Mutex // guards the following fields
	verdicts map[string]verdict
	why      map[string]error // by mode
	declared []string         // modes
}

// set replaces the verdicts, and wakes run if they differ.
func (d *Declarer) set(verdicts map[string]verdict, why map[string]error) {
	d.mu.Lock()
	same := maps.Equal(d.verdicts, verdicts)
	d.verdicts, d.why = verdicts, why
	d.mu.Unlock()
	if !same {
		d.compare()
	}
}

// compare makes run compare again.
func (d *Declarer) compare() {
	select {
	case d.wake <- struct{}{}:
	default: // a wake-up is already waiting
	}
}

// Run writes until ctx ends. It also compares after each change of the database: an operator may edit the option.
func (d *Declarer) Run(ctx context.Context) {
	defer d.sw.OnChange(d.compare)()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		if kube.Retry(ctx, func() error { return d.declare(ctx) }, func(err error) {
			if err.Error() != last {
				last = err.Error()
				d.log.Warnf("trying again: %v", err)
			}
		}) != nil {
			return
		}
		last = ""
	}
}

func (d *Declarer) declare(ctx context.Context) error {
	d.mu.Lock()
	verdicts, why := d.verdicts, d.why
	d.mu.Unlock()
	if verdicts == nil {
		return nil
	}
	var before, now []string
	edit := func(was string) string {
		before, now = names.SplitModes(was), nil
		for mode, v := range verdicts {
			if v == down || v == undecided && slices.Contains(before, mode) {
				now = append(now, mode)
			}
		}
		slices.Sort(now)
		return names.JoinModes(now)
	}
	// Run compares after each change of the copy, so the server is asked about a difference only.
	if was := d.sw.Controller().CMSOption(names.GatewayDownOption); edit(was) != was {
		if _, err := d.sw.Controller().EditCMSOption(ctx, names.GatewayDownOption, edit); err != nil {
			return err
		}
	}
	d.mu.Lock()
	d.declared = now
	d.mu.Unlock()
	for _, mode := range now {
		if !slices.Contains(before, mode) {
			logDown(d.log, mode, why[mode])
		}
	}
	for _, mode := range before {
		if !slices.Contains(now, mode) {
			d.log.Infof("gateway of this host (%s): forwards packets again", mode)
		}
	}
	return nil
}

// declareDown declares one mode of gateways of this host down, while there is no Monitor.
func declareDown(ctx context.Context, sw *vswitch.Switch, log *logrus.Entry, mode string, why error) error {
	changed, err := sw.Controller().EditCMSOption(ctx, names.GatewayDownOption, func(was string) string {
		modes := names.SplitModes(was)
		if !slices.Contains(modes, mode) {
			modes = append(modes, mode)
		}
		slices.Sort(modes)
		return names.JoinModes(modes)
	})
	if changed {
		logDown(log, mode, why)
	}
	return err
}

// Leave replaces the declaration of a helper after removal of its flows of a bridge, "" for none: a gateway still sharing it
// is down, and others stay as declared. Without a gateway there is no declaration.
func Leave(ctx context.Context, sw *vswitch.Switch, bridge string) error {
	all, err := sw.Interfaces(ctx)
	if err != nil {
		return err
	}
	shared, _ := SharedBridge(all)
	_, local := LocalPort(all)
	_, err = sw.Controller().EditCMSOption(ctx, names.GatewayDownOption, func(was string) string {
		before, now := names.SplitModes(was), []string(nil)
		if shared != "" && (shared == bridge || slices.Contains(before, names.BridgeMode)) {
			now = append(now, names.BridgeMode)
		}
		if local && slices.Contains(before, names.LocalMode) {
			now = append(now, names.LocalMode)
		}
		return names.JoinModes(now)
	})
	return err
}

func logDown(log *logrus.Entry, mode string, why error) {
	log.Warnf("gateway of this host (%s): down, other gateways get the packets of pods: %v", mode, why)
}

// String lists the modes declared down, "none" without any.
func (d *Declarer) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.declared) == 0 {
		return "none"
	}
	return strings.Join(d.declared, ", ")
}
