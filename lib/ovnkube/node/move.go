package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nicbridge"
	"ovn-k8s/lib/ovnkube/report"
)

const (
	// confirmWithin is the time to reach the API server after a move of the NIC. Then the move is undone.
	confirmWithin = time.Minute
	// aliveTimeout bounds one request to the API server.
	aliveTimeout = 5 * time.Second
	// aliveInterval is the time between two requests.
	aliveInterval = time.Second
	// moveAgain is the time before a move that was undone is tried again: each try interrupts the host's connections.
	moveAgain = 10 * time.Minute
)

// WatchCommand is the command of this program that calls Watch.
const WatchCommand = "watchdog"

// Watch guards the move of a NIC to a bridge from a process of its own: it undoes a half done move if the role's process
// is killed, else the host would have no network until the next start.
func Watch(ctx context.Context, configFile string, err io.Writer, bridge string) error {
	c := nicbridge.Command{Settings: map[string]string{"config-file": configFile}, Out: io.Discard, Err: err}
	return nicbridge.Watch(ctx, c, bridge)
}

// A mover moves NICs to bridges.
type mover struct {
	undone error     // why the last move was undone, or failed
	until  time.Time // no other one before
}

// moveNIC moves a NIC with all that the host has on it to a bridge. The move is undone if the host does not reach the API
// server afterwards, and did before.
func (p *pass) moveNIC(ctx context.Context, nic, bridge string) error {
	if p.found != nil {
		*p.found = append(*p.found, fmt.Sprintf("~ move %s with its addresses and routes to bridge %s", nic, bridge))
		return waiting("what follows depends on that move")
	}
	if m := &p.mover; m.undone != nil && time.Now().Before(m.until) {
		return fmt.Errorf("%w; the next try is at %s, or at the next start", m.undone, m.until.Format(time.TimeOnly))
	}
	reached := p.alive(ctx) == nil
	c := p.move()
	c.Names = []string{nic}
	if reached {
		c.ConfirmWithin = confirmWithin
	}
	text := fmt.Sprintf("moving %s with its addresses and routes to bridge %s", nic, bridge)
	err := p.apply([]string{text}, func() error { return nicbridge.Move(ctx, nicbridge.ToBridge, c) })
	if err != nil && !nicbridge.IsUndone(err) {
		return err // nothing was changed
	}
	if err == nil && reached {
		err = p.confirm(ctx, c, bridge)
	}
	if err != nil {
		p.mover.undone, p.mover.until = err, time.Now().Add(moveAgain)
		return err
	}
	p.mover.undone = nil
	p.log.Infof("moved %s to bridge %s", nic, bridge)
	return nil
}

// move is a command of lib/nicbridge with the settings of this role.
func (p *pass) move() nicbridge.Command {
	c := nicbridge.Command{Settings: map[string]string{}, Mark: map[string]string{names.MovedBy: names.Ovnkube}, Watch: WatchCommand, Unwatched: true, Out: io.Discard, Err: &report.Lines{Line: p.warn}, Advise: report.Advice(p.log)}
	if file := p.Flags["config-file"]; file != "" {
		c.Settings["config-file"] = file
	}
	if server := p.session.Config.APIServer; server != "" {
		c.Settings["k8s-api-server"] = server
	}
	return c
}

// alive asks the API server.
func (p *pass) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	return p.cluster.Alive(ctx)
}

// confirm confirms the move to a bridge once the API server answers, or waits until the move is undone: also if this
// role has to end.
func (p *pass) confirm(ctx context.Context, c nicbridge.Command, bridge string) error {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	watched := c
	watched.Err = &report.Lines{Line: report.Once(p.log)} // p.warn belongs to this goroutine
	ended := make(chan struct{})
	var failed error // of the watch that has ended
	go func() {
		defer close(ended)
		failed = nicbridge.Watch(ctx, watched, bridge)
	}()
	defer func() {
		stop()
		<-ended
	}()
	unreached := reach(func() error { return p.alive(ctx) }, ended)
	if unreached != nil {
		return errors.Join(fmt.Errorf("the API server does not answer by bridge %s, so the move was undone: %w", bridge, unreached), failed)
	}
	c.Names = []string{bridge}
	return nicbridge.Confirm(ctx, c)
}

// reach asks the API server until it answers. If it does not until the move is undone, its last failure is returned, also
// if it answers then: by the former network.
func reach(alive func() error, undone <-chan struct{}) (unreached error) {
	for {
		err := alive()
		select {
		case <-undone:
			return cmp.Or(unreached, err)
		default:
		}
		if err == nil {
			return nil
		}
		unreached = err
		select {
		case <-undone:
			return unreached
		case <-time.After(aliveInterval):
		}
	}
}

// recoverMoves undoes interrupted moves, and confirms those of a former process with this role. Moves of an
// operator are left to 'ovn-k8s-util confirm' until their deadline.
func (p *pass) recoverMoves(ctx context.Context) error {
	unconfirmed, interrupted, err := nicbridge.Unconfirmed(names.Ovnkube)
	if err != nil {
		return err
	}
	for _, bridge := range unconfirmed {
		if p.found != nil {
			return waiting(fmt.Sprintf("the move of a NIC to bridge %s is not confirmed", bridge))
		}
		if err := p.confirm(ctx, p.move(), bridge); err != nil {
			return err
		}
	}
	if !interrupted {
		return nil
	}
	if p.found != nil {
		return waiting("a move of a NIC was interrupted: the role finishes it when it starts")
	}
	return nicbridge.Recover(ctx, p.move())
}
