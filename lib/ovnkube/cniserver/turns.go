package cniserver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"ovn-k8s/lib/cni"
)

// errDeleted ends the other requests of a container when DEL comes.
var errDeleted = errors.New("the runtime called DEL")

// turns let the requests of one container run one after another. A runtime may call again while the server still undoes
// a request of which the client was killed.
type turns struct {
	mu      sync.Mutex
	running map[string]*turn // by container
}

// A turn is a running request.
type turn struct {
	command string
	ctx     context.Context
	end     context.CancelCauseFunc
	done    chan struct{}
}

// enter waits until a request may run, with the context returned, until leave. DEL ends a running ADD or CHECK of the container. GC
// waits for all requests without a client. The error is ctx's.
func (t *turns) enter(ctx context.Context, r cni.Request) (_ context.Context, leave func(), err error) {
	own := &turn{command: r.Command, done: make(chan struct{})}
	own.ctx, own.end = context.WithCancelCause(ctx)
	for {
		var before []*turn
		switch r.Command {
		case "ADD", "CHECK", "DEL":
			before = t.take(r.Args.ContainerID, own)
		case "GC":
			before = t.ended()
		}
		if len(before) == 0 {
			return own.ctx, func() { t.leave(r.Args.ContainerID, own) }, nil
		}
		if r.Command == "DEL" && before[0].command != "DEL" {
			before[0].end(errDeleted)
		}
		select {
		case <-before[0].done:
		case <-ctx.Done():
			own.end(nil)
			return nil, nil, context.Cause(ctx)
		}
	}
}

// take makes a turn the running one of a container, or returns the one that is.
func (t *turns) take(container string, own *turn) []*turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.running[container]; now != nil {
		return []*turn{now}
	}
	if t.running == nil {
		t.running = map[string]*turn{}
	}
	t.running[container] = own
	return nil
}

// ended are the running requests of which the context has ended.
func (t *turns) ended() []*turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(t.running)), func(o *turn) bool { return o.ctx.Err() == nil })
}

func (t *turns) leave(container string, own *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[container] == own {
		delete(t.running, container)
	}
	own.end(nil)
	close(own.done)
}
