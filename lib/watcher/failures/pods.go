package failures

import (
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/nb"
)

// A World finds failures of running pods.
type World interface {
	// Mismatch returns the problem of a pod with other addresses than assigned.
	Mismatch(u nb.Unit) *feature.Problem
	// Disconnected returns the running pods with a port that is down.
	Disconnected(down map[string]bool) []desired.UnitProblem
}

// Pods reports failures of running pods in Events, once each. The log names the first.
type Pods struct {
	network World
	log     *logrus.Entry
	send    func(func() []nb.Unit)
	tell    func(u nb.Unit, err error)

	lines        *lines             // about mismatches: a kubelet may report other addresses in turns
	told         map[nb.Unit]string // the message about a mismatch
	named        map[nb.Unit]bool   // a mismatch is in the log
	later        map[nb.Unit]bool   // an Event about a mismatch is to be written
	disconnected map[nb.Unit]bool   // pods without an interface
}

// NewPods returns a Pods. The goroutine that calls the functions of send owns it. tell writes an Event about a unit.
func NewPods(network World, log *logrus.Entry, send func(func() []nb.Unit), tell func(nb.Unit, error)) *Pods {
	return &Pods{network: network, log: log, send: send, tell: tell, lines: newLines(log, send), told: map[nb.Unit]string{}, named: map[nb.Unit]bool{}, later: map[nb.Unit]bool{}}
}

// Mismatches writes an Event about each running pod among units with other addresses than assigned, once. The
// log names the first one. A conversion to dual stack makes one for each running pod.
func (p *Pods) Mismatches(units []nb.Unit) {
	told := 0
	for _, u := range units {
		problem := p.network.Mismatch(u)
		switch {
		case problem == nil:
			if p.named[u] {
				delete(p.named, u)
				p.lines.say(u, "")
			}
			delete(p.told, u)
			delete(p.later, u)
			continue
		case p.told[u] == problem.Message:
			continue
		case told == eventBatch:
			p.postpone(u)
			continue
		}
		switch told++; told {
		case 1:
			p.named[u] = true
			p.lines.say(u, problem.Error())
		case 2:
			p.lines.say(u, `runs with other addresses than it is assigned, like another pod and perhaps more: "ovs-appctl -t ovn-k8s-watcher pod/show" names them all (with ovnkube: -t ovnkube)`)
		}
		p.told[u] = problem.Message
		p.tell(u, problem)
	}
}

// postpone checks a pod again after a while.
func (p *Pods) postpone(u nb.Unit) {
	if len(p.later) == 0 {
		time.AfterFunc(eventPause, func() {
			p.send(func() []nb.Unit {
				units := make([]nb.Unit, 0, len(p.later))
				for u := range p.later {
					units = append(units, u)
				}
				clear(p.later)
				p.Mismatches(units)
				return nil
			})
		})
	}
	p.later[u] = true
}

// Disconnected writes an Event about each running pod with a port that is down, once. The log names the first
// one.
func (p *Pods) Disconnected(down map[string]bool) {
	now, told := map[nb.Unit]bool{}, 0
	for _, pod := range p.network.Disconnected(down) {
		if p.disconnected[pod.Unit] {
			now[pod.Unit] = true
			continue
		}
		if told == eventBatch {
			continue // next time
		}
		now[pod.Unit] = true
		if told++; told == 1 {
			p.log.WithField("unit", pod.Unit).Warn(pod.Problem)
		}
		p.tell(pod.Unit, pod.Problem)
	}
	if told > 1 {
		p.log.WithField("pods", told).Warn("more pods run without an interface: \"ovn-k8s-watcher --check\" names them")
	}
	p.disconnected = now
}
