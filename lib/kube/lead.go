package kube

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Of the Lease: how long it is valid unless it is renewed, after which time
// without an answer its holder stops, and how often everybody tries. Kubernetes' own components have 15, 10 and 2 s.
// A watcher may have less: its writes are fenced in the database, and whoever has the Lease again
// before another watcher goes on where it was.
const (
	leaseDuration = 10 * time.Second
	renewDeadline = 7 * time.Second
	retryPeriod   = time.Second
	// leadTime is for how long lead goes on after the begin of the last request
	// that renewed the Lease. What is left of leaseDuration is for it to return in.
	leadTime = 8 * time.Second
	// electionTimeout bounds each request. Without, one that gets no answer, as
	// where a firewall or a router has lost the connection, would be waited for
	// for most of a minute while others have the Lease.
	electionTimeout = 3 * time.Second
)

// electionClient is for Leases, and what is read before leading. A request that is late must not be
// followed by others on the same connection, which may be dead: with HTTP/1.1 a
// request that times out takes its connection with it.
func electionClient(config *rest.Config) (*kubernetes.Clientset, error) {
	config = rest.CopyConfig(config)
	config.Timeout, config.NextProtos = electionTimeout, []string{"http/1.1"}
	return kubernetes.NewForConfig(config)
}

// Lead runs lead whenever this process holds the Lease, and cancels lead's
// context as soon as it may have lost it. It returns when ctx is done, or with
// the result of a lead that returned by itself. Of all processes that use the
// same Lease, one runs lead at a time: a process that ends gives the Lease up
// only after lead has returned, and in one that cannot renew it lead has 2 s to
// return until others may take it.
//
// Where Candidate.Dead knows that the holder has ended, the Lease is free at once.
// Otherwise, after the end of a process that could not give it up, another one
// has it within 10 s and one or two tries, in all 15 s at most.
func (c *Cluster) Lead(ctx context.Context, log *logrus.Entry, lease types.NamespacedName, who Candidate, lead func(context.Context) error) error {
	for ctx.Err() == nil {
		err, ended := c.leadOnce(ctx, log, lease, who, lead)
		if ended {
			return err
		}
	}
	return ctx.Err()
}

// A Candidate is a process that wants the Lease.
type Candidate struct {
	// Identity is the process's own: two processes with one would both lead.
	Identity string
	// Dead reports whether another candidate is known to have ended.
	Dead func(identity string) bool
	// Elected is told who has the Lease, whenever that changes.
	Elected func(identity string)
}

// A lock is a Lease with a timer that runs out leadTime after its last renewal.
type lock struct {
	resourcelock.LeaseLock
	timer  *time.Timer
	dead   func(identity string) bool
	failed func(error)                // is told how each request went
	held   *atomic.Pointer[time.Time] // see Cluster.Leads
}

// Get is that of resourcelock.Interface. A holder that has ended holds nothing.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.LeaseLock.Get(ctx)
	l.failed(err)
	if err == nil && record.HolderIdentity != l.Identity() && l.dead(record.HolderIdentity) {
		record.HolderIdentity = ""
	}
	return record, raw, err
}

// Create is that of resourcelock.Interface.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.renew(func() error { return l.LeaseLock.Create(ctx, r) })
}

// Update is that of resourcelock.Interface.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.renew(func() error { return l.LeaseLock.Update(ctx, r) })
}

func (l *lock) renew(write func() error) error {
	end := time.Now().Add(leadTime)
	err := write()
	l.failed(err)
	if err == nil {
		l.held.Store(&end)
		l.timer.Reset(time.Until(end))
	}
	return err
}

// release gives the Lease up, if it is still ours: others need not wait for its
// end. The elector's own way would take it from another who has it by now.
func (l *lock) release(log *logrus.Entry) {
	ctx, cancel := context.WithTimeout(context.Background(), electionTimeout)
	defer cancel()
	held, _, err := l.Get(ctx)
	if err == nil && held.HolderIdentity == l.Identity() {
		now := metav1.Now()
		err = l.LeaseLock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: held.LeaderTransitions, LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now,
		})
	}
	if err != nil {
		log.Warnf("cannot give up Lease %s, which will expire: %v", l.Describe(), err)
	}
}

// elector makes what gets the Lease and keeps it, and calls leads once it has it.
func (c *Cluster) elector(l *lock, elected func(string), leads func(leading context.Context)) (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: leads,
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				c.leader.Store(&identity)
				elected(identity)
			},
		},
	})
}

// leadOnce waits for the Lease and runs lead until it is lost. It reports
// whether lead returned by itself.
func (c *Cluster) leadOnce(ctx context.Context, log *logrus.Entry, lease types.NamespacedName, who Candidate, lead func(context.Context) error) (err error, ended bool) {
	started, abandoned := make(chan context.Context), make(chan struct{})
	held, lose := context.WithCancel(context.Background())
	defer lose()
	l := &lock{timer: time.AfterFunc(leadTime, lose), dead: who.Dead, failed: c.noteElection, held: &c.held, LeaseLock: resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
		Client:     c.election.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: who.Identity},
	}}
	l.timer.Stop() // it is not ours yet
	elector, err := c.elector(l, who.Elected, func(leading context.Context) {
		select {
		case started <- leading:
		case <-abandoned:
		}
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
		l.timer.Stop()
		c.held.Store(nil)
		if elector.IsLeader() && (ended || ctx.Err() != nil) { // else the Lease is waited for
			l.release(log)
		}
	}()
	select {
	case <-ctx.Done():
		return ctx.Err(), true
	case leading := <-started:
		leading, cancel := context.WithCancel(leading)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		defer context.AfterFunc(held, cancel)()
		err = lead(leading)
		return err, leading.Err() == nil || ctx.Err() != nil
	}
}

// Leads reports whether this process has the Lease at this moment. A process that was frozen learns it
// here before its timers run.
func (c *Cluster) Leads() bool {
	until := c.held.Load()
	return until != nil && time.Now().Before(*until)
}

// Leader is the identity of who had the Lease when Lead looked last, "" if it has
// not seen it yet or nobody had it.
func (c *Cluster) Leader() string {
	if identity := c.leader.Load(); identity != nil {
		return *identity
	}
	return ""
}

// noteElection records why the last request for the Lease failed.
func (c *Cluster) noteElection(err error) {
	if err != nil && apierrors.IsNotFound(err) {
		err = nil // nobody has had it yet
	}
	c.refused.Store(&err)
}

// ElectionError is why the last request for the Lease failed, nil if it did not.
func (c *Cluster) ElectionError() error {
	if err := c.refused.Load(); err != nil {
		return *err
	}
	return nil
}
