package ovnkube

import (
	"context"
	"errors"
	"sync"
	"time"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/settings"
)

// acceptTimeout is the time after which a role reports that it waits for an acceptance.
const acceptTimeout = 5 * time.Second

var errNotAccepted = errors.New("the master on this host has not accepted the cluster yet")

// An acceptance tells when the master of this process has not refused the cluster it found.
type acceptance struct {
	given  chan struct{}
	accept func()
}

func newAcceptance() acceptance {
	given := make(chan struct{})
	return acceptance{given, sync.OnceFunc(func() { close(given) })}
}

// before returns r so that it serves only after the acceptance, if this host has never been a node of ovnkube: a refused
// start changes nothing there. Other hosts do not wait, since they may reach no database without their shared NIC.
func (a acceptance) before(r settings.Role) settings.Role {
	serve := r.Serve
	r.Serve = func(ctx context.Context, s settings.Session, ready func()) error {
		if s.Switch.ExternalIDs()[names.FormerIDs] == "" {
			if err := a.await(ctx); err != nil {
				return err
			}
		}
		return serve(ctx, s, ready)
	}
	return r
}

func (a acceptance) await(ctx context.Context) error {
	late := time.NewTimer(acceptTimeout)
	defer late.Stop()
	select {
	case <-a.given:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return errNotAccepted
	}
}
