package kube

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lead runs lead whenever this process holds the Lease, and cancels lead's
// context as soon as it may have lost it. It returns when ctx is done, or with
// the result of a lead that returned by itself. Of all processes that use the
// same Lease, one runs lead at a time: the Lease is given up only after lead has
// returned. A process that starts again with the same identity has the Lease at
// once; another one may wait for up to 15 s.
func (c *Cluster) Lead(ctx context.Context, lease types.NamespacedName, identity string, lead func(context.Context) error) error {
	for ctx.Err() == nil {
		err, ended := c.leadOnce(ctx, lease, identity, lead)
		if ended {
			return err
		}
	}
	return ctx.Err()
}

// leadOnce waits for the Lease and runs lead until it is lost. It reports
// whether lead returned by itself.
func (c *Cluster) leadOnce(ctx context.Context, lease types.NamespacedName, identity string, lead func(context.Context) error) (err error, ended bool) {
	started, abandoned := make(chan context.Context), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
			Client:     c.clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				select {
				case started <- leading:
				case <-abandoned:
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("electing a leader with Lease %s: %w", lease, err), true
	}
	// The elector outlives ctx, so that it holds the Lease until lead is done.
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		elector.Run(electing)
	}()
	defer func() {
		close(abandoned)
		stop()
		<-done
	}()
	select {
	case <-ctx.Done():
		return ctx.Err(), true
	case leading := <-started:
		leading, cancel := context.WithCancel(leading)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		err = lead(leading)
		return err, leading.Err() == nil || ctx.Err() != nil
	}
}
