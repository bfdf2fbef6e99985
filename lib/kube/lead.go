package kube

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// LeaseTimes are the times of a Lease. The Duration is longer than the RenewDeadline, and that is longer than 1.2 times the
// RetryPeriod.
type LeaseTimes struct {
	Duration      time.Duration // without renewal
	RenewDeadline time.Duration // after which a holder without answers stops
	RetryPeriod   time.Duration
}

// defaultTimes are the times of a Lease. Kubernetes' own components have 15, 10 and 2 s. A watcher may use less, because
// its writes are fenced in the database, and a watcher that regains the Lease before another one got it continues.
func defaultTimes() LeaseTimes { return LeaseTimes{LeaseDuration, 7 * time.Second, time.Second} }

// LeaseDuration is the time after which a Lease is free without renewal, if its holder has no other LeaseTimes.
const LeaseDuration = 10 * time.Second

// returnTime is what is left of a Lease when lead is canceled, a fifth of a short one.
const returnTime = 2 * time.Second

// leadTime is the time since the start of the last successful renewal after which lead is canceled. lead has the rest of
// Duration to return.
func (t LeaseTimes) leadTime() time.Duration { return t.Duration - min(returnTime, t.Duration/5) }

// requestTimeout bounds each request. Without it, a request over a connection lost by a firewall or router would block for
// most of a minute, and the Lease would expire. Longer times are for a slow API server; two requests may time out before
// the RenewDeadline. client-go recommends half of it (NewFromKubeconfig of resourcelock), with no time for a third one.
func (t LeaseTimes) requestTimeout() time.Duration { return max(3*time.Second, t.RenewDeadline*2/5) }

// electionClient is for Leases and reads before leading. It uses HTTP/1.1, in which a request that times out also
// closes its connection: the connection may be dead.
func electionClient(config *rest.Config, times LeaseTimes) (*kubernetes.Clientset, error) {
	config = rest.CopyConfig(config)
	config.Timeout, config.NextProtos = times.requestTimeout(), []string{"http/1.1"}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	return clients, nil
}

// Lead runs lead whenever this process holds the Lease, and cancels its context as soon as the Lease may be lost. It
// returns when ctx is done, or the result of lead if lead returns by itself. Of all processes with the same Lease,
// one runs lead at a time: an ending process releases the Lease after lead has returned, and a process that cannot
// renew the Lease leaves lead 2 s to return before others may take it.
//
// If Candidate.Dead reports that the holder has ended, the Lease is free at once. Otherwise, after a crash, another
// process takes it within the duration of the Lease and one or two retries, by default 15 s at most.
func (c *Cluster) Lead(ctx context.Context, log *logrus.Entry, lease types.NamespacedName, who Candidate, lead func(context.Context) error) error {
	who.Times = cmp.Or(who.Times, defaultTimes())
	election, err := electionClient(c.server, who.Times)
	if err != nil {
		return err
	}
	c.election.Store(election)
	for ctx.Err() == nil {
		err, ended := c.leadOnce(ctx, log, lease, who, lead)
		if ended {
			return err
		}
	}
	return ctx.Err()
}

// A Candidate is a process competing for the Lease.
type Candidate struct {
	// Identity must be unique: two processes with the same one would both lead.
	Identity string
	// Dead reports whether another candidate is known to have ended.
	Dead func(identity string) bool
	// Elected is called with the new holder's identity after each change, "" for none.
	Elected func(identity string)
	// Times are those of the Lease while this process has it; the zero value: the default.
	Times LeaseTimes
	// Unable returns the reason not to take the Lease now, or nil. It does not end lead.
	Unable func() error
}

// A lock is a Lease with a timer of leadTime since its last renewal.
type lock struct {
	resourcelock.LeaseLock
	times      LeaseTimes
	namespaces typedcorev1.NamespaceInterface
	timer      *time.Timer
	clock      func() time.Duration
	dead       func(identity string) bool
	unable     func() error
	failed     func(error)                    // called with the result of each request
	held       *atomic.Pointer[time.Duration] // see Cluster.Leads
}

// Get implements resourcelock.Interface. A Lease of a dead holder is free.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.LeaseLock.Get(ctx)
	if apierrors.IsNotFound(err) { // the Lease was never held
		l.failed(nil)
	} else {
		l.failed(err)
	}
	if err == nil && record.HolderIdentity != l.Identity() && l.dead(record.HolderIdentity) {
		record.HolderIdentity = ""
	}
	return record, raw, err
}

// Create implements resourcelock.Interface. It creates a missing namespace, too.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.renew(func() error {
		err := l.LeaseLock.Create(ctx, r)
		if !apierrors.IsNotFound(err) {
			return err
		}
		if err := l.createNamespace(ctx); err != nil {
			return err
		}
		return l.LeaseLock.Create(ctx, r)
	})
}

func (l *lock) createNamespace(ctx context.Context) error {
	name := l.LeaseMeta.Namespace
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := l.namespaces.Create(ctx, ns, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("namespace %s of the Lease: not found; create it (%w)", name, err)
	}
	return nil
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.renew(func() error { return l.LeaseLock.Update(ctx, r) })
}

func (l *lock) renew(write func() error) error {
	if l.held.Load() == nil {
		if err := l.unable(); err != nil {
			return fmt.Errorf("left to others: %w", err)
		}
	}
	end := l.clock() + l.times.leadTime()
	err := write()
	l.failed(err)
	if err == nil {
		l.held.Store(&end)
		l.timer.Reset(end - l.clock())
	}
	return err
}

// release releases the Lease if it is still ours, so that others need not wait for its expiry. The release of
// LeaderElector could take it from another holder.
func (l *lock) release(log *logrus.Entry) {
	ctx, cancel := context.WithTimeout(context.Background(), l.times.requestTimeout())
	defer cancel()
	held, _, err := l.Get(ctx)
	if err == nil && held.HolderIdentity == l.Identity() {
		now := metav1.Now()
		err = l.LeaseLock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: held.LeaderTransitions, LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now,
		})
	}
	if err != nil {
		log.Warnf("cannot release Lease %s, it expires by itself: %v", l.Describe(), err)
	}
}

// elector creates the LeaderElector. It calls leads once it holds the Lease.
func (c *Cluster) elector(l *lock, elected func(string), leads func(leading context.Context)) (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l, LeaseDuration: l.times.Duration, RenewDeadline: l.times.RenewDeadline, RetryPeriod: l.times.RetryPeriod,
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

// leadOnce waits for the Lease and runs lead until it is lost. ended reports whether lead returned by itself.
func (c *Cluster) leadOnce(ctx context.Context, log *logrus.Entry, lease types.NamespacedName, who Candidate, lead func(context.Context) error) (err error, ended bool) {
	started, abandoned := make(chan context.Context), make(chan struct{})
	held, lose := context.WithCancel(context.Background())
	defer lose()
	l := &lock{
		times: who.Times, timer: time.AfterFunc(who.Times.leadTime(), lose), clock: c.clock, dead: who.Dead, unable: who.Unable, failed: c.noteElection, held: &c.held,
		namespaces: c.election.Load().CoreV1().Namespaces(),
		LeaseLock: resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
			Client:     c.election.Load().CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: who.Identity},
		},
	}
	l.timer.Stop() // not held yet
	elector, err := c.elector(l, who.Elected, func(leading context.Context) {
		select {
		case started <- leading:
		case <-abandoned:
		}
	})
	if err != nil {
		return fmt.Errorf("electing a leader with Lease %s: %w", lease, err), true
	}
	// The elector outlives ctx, to hold the Lease until lead has returned.
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
		if elector.IsLeader() && (ended || ctx.Err() != nil) { // otherwise still waiting for the Lease
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

// Leads reports whether this process holds the Lease now. A process that was frozen, or whose host was suspended, notices the
// expiry here: its timers run later.
func (c *Cluster) Leads() bool {
	until := c.held.Load()
	return until != nil && c.clock() < *until
}

// sinceBoot is the time since the host's boot. Go's monotonic clock stands still while a host is suspended, and this one
// does not (clock_gettime(2)). Linux has it since 2.6.39, so there is no error.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano())
}

// Leader is the identity of the last known holder of the Lease, "" if none is known.
func (c *Cluster) Leader() string {
	if identity := c.leader.Load(); identity != nil {
		return *identity
	}
	return ""
}

// A Holding is the state of a Lease. The zero Holding is a Lease nobody has.
type Holding struct {
	Identity string // of the holder
	Renewed  string // differs after each renewal
	// Duration is the time after which the Lease is free without renewal. Count it by the own monotonic clock.
	Duration time.Duration
}

// Holder reads a Lease that this process does not compete for. A missing Lease is the zero Holding.
func (c *Cluster) Holder(ctx context.Context, lease types.NamespacedName) (Holding, error) {
	l, err := c.election.Load().CoordinationV1().Leases(lease.Namespace).Get(ctx, lease.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Holding{}, nil
	}
	if err != nil {
		return Holding{}, fmt.Errorf("reading Lease %s: %w", lease, err)
	}
	var h Holding
	if l.Spec.HolderIdentity != nil {
		h.Identity = *l.Spec.HolderIdentity
	}
	if l.Spec.RenewTime != nil {
		h.Renewed = l.Spec.RenewTime.String()
	}
	if l.Spec.LeaseDurationSeconds != nil {
		h.Duration = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	return h, nil
}

// noteElection records the error of the last request for the Lease.
func (c *Cluster) noteElection(err error) { c.refused.Store(&err) }

// ElectionError is the error of the last request for the Lease, or nil.
func (c *Cluster) ElectionError() error {
	if err := c.refused.Load(); err != nil {
		return *err
	}
	return nil
}
