package settings

import (
	"errors"
	"slices"

	"ovn-k8s/lib/config"
)

// A refusal is a role's error about newer settings.
type refusal struct {
	error
	settings config.Config
	names    []string // the role's settings with other values than the present ones
}

// stays reports whether one of the refused settings still has its value.
func (r *refusal) stays(now config.Config) bool {
	left := names(r.settings.Changes(now))
	return slices.ContainsFunc(r.names, func(name string) bool { return !slices.Contains(left, name) })
}

func names(changes []config.Change) (all []string) {
	for _, c := range changes {
		all = append(all, c.Name)
	}
	return all
}

// check returns an error if settings lack something that a role needs.
func (p *process) check(c config.Config) error {
	for _, r := range p.running {
		if r.Check == nil {
			continue
		}
		if err := r.Check(c); err != nil {
			return err
		}
	}
	return nil
}

// accept returns an error if a role cannot go on with changed settings. While the role cannot judge, a refusal lasts until
// each setting that made it has another value than then. The caller holds mu.
func (p *process) accept(now config.Config) error {
	changes := p.config.Changes(now)
	for _, r := range p.running {
		if !r.reads(changes) || r.Accept == nil {
			continue
		}
		err := r.Accept(now)
		if errors.Is(err, ErrUndecided) {
			if p.refusal != nil && p.refusal.stays(now) {
				return p.refusal
			}
			continue
		}
		if err != nil {
			others := func(c config.Change) bool { return !r.reads([]config.Change{c}) }
			p.refusal = &refusal{err, now, names(slices.DeleteFunc(p.config.WithAPIServer(now).Changes(now), others))}
			return p.refusal
		}
	}
	return nil
}
