package ovnkube

import (
	"context"
	"errors"
	"fmt"

	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
)

// Check compares what the roles of the command line keep with what it should be, once, and prints each difference to Out as a
// line: the database and annotations for --init-master, this host for --init-node. Lines start with + (missing), -
// (superfluous), ~ (different) or ! (a problem). It reports whether there was none. It changes nothing, and may run beside the
// roles: their pending changes are differences.
func (p *Process) Check(ctx context.Context) (bool, error) {
	s, err := p.session(ctx)
	if s.Switch != nil {
		defer s.Switch.Close()
	}
	if err != nil {
		return false, err
	}
	same := true
	var failed []error
	for _, r := range p.roles {
		if r.differences == nil {
			continue
		}
		lines, err := r.differences(ctx, s)
		for _, l := range lines {
			same = false
			fmt.Fprintln(p.Out, l)
		}
		failed = append(failed, err)
	}
	return same, errors.Join(failed...)
}

// session are the settings and connections of this host, with the present addresses of the databases. A process with the
// master's role only needs no Open vSwitch.
func (p *Process) session(ctx context.Context) (s settings.Session, err error) {
	r := p.runtime()
	s.Switch, err = p.neededSwitch(ctx)
	if err != nil {
		return s, err
	}
	if s.Config, err = r.Load(ctx, s.Switch); err != nil {
		return s, err
	}
	if err := p.locator.look(ctx, s); err != nil {
		return s, nil // the roles tell about the API server
	}
	s.Config, err = r.Load(ctx, s.Switch)
	return s, err
}

func (p *Process) neededSwitch(ctx context.Context) (*vswitch.Switch, error) {
	for _, r := range p.roles {
		if r.NeedsSwitch {
			return p.runtime().ConnectSwitch(ctx)
		}
	}
	return p.trySwitch(ctx), nil
}
