// Package controlplane runs a real Kubernetes control plane inside the calling
// process: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, with
// TLS, tokens and RBAC.
//
// It is a separate module to keep k8s.io/kubernetes and its pinned versions out of
// the product's go.mod. Tests use it through the program kcluster and the package
// test/kubetest.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	readyTimeout = 90 * time.Second
	stopTimeout  = 3 * time.Second
	pollInterval = 20 * time.Millisecond
)

// The components allowed in Options.Without.
const (
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// Options configure Start.
type Options struct {
	// Dir keeps all state: certificates, tokens, kubeconfigs, etcd's data and the
	// port. A second Start with the same Dir continues the same cluster.
	Dir string
	// Bind is the address to listen on. Default: 127.0.0.1.
	Bind netip.Addr
	// Advertise is the endpoint address of the Service "kubernetes". Default: Bind.
	Advertise netip.Addr
	// Names are additional addresses and host names for the server's certificate.
	Names []string
	// Port is the port to listen on. 0 means the port of the last Start with Dir,
	// or a free one.
	Port int
	// ServiceCIDRs are one or two prefixes. Default: 10.96.0.0/16.
	ServiceCIDRs []netip.Prefix
	// PodCIDRs, if any, are divided into Node.spec.podCIDRs by the controller
	// manager.
	PodCIDRs []netip.Prefix
	// Without lists components not to start.
	Without []string
	// APIServerArgs and ControllerManagerArgs are added to the command lines.
	APIServerArgs, ControllerManagerArgs []string
	// Log receives one line for each step. It may be nil.
	Log func(format string, args ...any)
}

// A Cluster is a running control plane.
type Cluster struct {
	Kubeconfig string // the administrator's
	URL        string
	Token      string // the administrator's
	CAFile     string

	opts   Options
	pki    pki
	etcd   *embed.Etcd
	cancel context.CancelFunc
	parts  []*part
	died   chan error
}

// A part is a component's goroutine.
type part struct {
	name string
	done chan struct{}
}

// Start starts a control plane and returns when its API server is ready and, with a
// controller manager, the default service account exists. The caller must Stop it.
// The end of ctx stops it, too.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &Cluster{
		Kubeconfig: filepath.Join(o.Dir, "admin.kubeconfig"),
		URL:        fmt.Sprintf("https://%s", netip.AddrPortFrom(o.Bind, uint16(o.Port))),
		CAFile:     filepath.Join(o.Dir, "pki", "ca.crt"),
		opts:       o,
		cancel:     cancel,
		died:       make(chan error, 3),
	}
	if err := c.start(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// complete sets defaults and checks o.
func (o *Options) complete() error {
	if o.Dir == "" {
		return errors.New("no directory given")
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}
	if !o.Bind.IsValid() {
		o.Bind = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if !o.Advertise.IsValid() {
		o.Advertise = o.Bind
	}
	if len(o.ServiceCIDRs) == 0 {
		o.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	for _, name := range o.Without {
		if name != ControllerManager && name != Scheduler {
			return fmt.Errorf("cannot do without %q: only without %s or %s", name, ControllerManager, Scheduler)
		}
	}
	port, err := settlePort(filepath.Join(o.Dir, "port"), o.Bind, o.Port)
	o.Port = port
	return err
}

// start starts the components in order.
func (c *Cluster) start(ctx context.Context) error {
	began := time.Now()
	step := func(name string, f func() error) error {
		if err := f(); err != nil {
			return fmt.Errorf("starting %s: %w", name, err)
		}
		c.opts.Log("%s after %.1f s", name, time.Since(began).Seconds())
		return nil
	}
	// The controller manager's flags override the default of a feature gate. Gates
	// are process-wide, and an override is allowed only before another component
	// adds them to its flags. So these flags come first.
	manager, err := newManager()
	if err != nil {
		return err
	}
	if err := step("certificates", c.certificates); err != nil {
		return err
	}
	if err := step("etcd", func() error { return c.startEtcd(ctx) }); err != nil {
		return err
	}
	if err := step("kube-apiserver", func() error { return c.startAPIServer(ctx) }); err != nil {
		return err
	}
	if !slices.Contains(c.opts.Without, ControllerManager) {
		if err := step(ControllerManager, func() error { return c.startManager(ctx, manager) }); err != nil {
			return err
		}
	}
	if !slices.Contains(c.opts.Without, Scheduler) {
		return step(Scheduler, func() error { return c.startScheduler(ctx) })
	}
	return nil
}

// Died delivers the error of a component after an unexpected end.
func (c *Cluster) Died() <-chan error { return c.died }

// Stop stops the control plane and waits for its end.
func (c *Cluster) Stop() {
	c.cancel()
	deadline := time.After(stopTimeout)
	for _, p := range c.parts {
		select {
		case <-p.done:
		case <-deadline:
			c.opts.Log("%s does not end: leaving it behind", p.name)
		}
	}
	if c.etcd != nil {
		c.etcd.Close()
	}
}

// run runs a component until ctx ends.
func (c *Cluster) run(ctx context.Context, name string, f func() error) {
	p := &part{name: name, done: make(chan struct{})}
	c.parts = append(c.parts, p)
	go func() {
		defer close(p.done)
		if err := f(); err != nil && ctx.Err() == nil {
			c.died <- fmt.Errorf("running %s: %w", name, err)
		}
	}()
}

// await polls until ok returns no error, a component died, or readyTimeout has passed.
func (c *Cluster) await(ctx context.Context, ok func() error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return nil
		}
		select {
		case died := <-c.died:
			return died
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// awaitReady waits for the API server's /readyz.
func (c *Cluster) awaitReady(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return c.await(ctx, func() error {
		var status int
		err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status).Error()
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("readyz answers %d", status)
		}
		return err
	})
}

// awaitServiceAccount waits until pods can be created in the default namespace.
func (c *Cluster) awaitServiceAccount(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return c.await(ctx, func() error {
		const path = "/api/v1/namespaces/default/serviceaccounts/default"
		return client.CoreV1().RESTClient().Get().AbsPath(path).Do(ctx).Error()
	})
}

func (c *Cluster) client() (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// join formats prefixes for the components' flags.
func join(prefixes []netip.Prefix) string {
	var s []string
	for _, p := range prefixes {
		s = append(s, p.String())
	}
	return strings.Join(s, ",")
}
