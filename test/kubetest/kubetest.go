// Package kubetest runs a real Kubernetes control plane for tests: the program
// kcluster of the nested module test/controlplane, as a separate process.
//
// It takes no *testing.T, so scripts, tests and the demo can use it. A cluster
// takes three seconds to start and one to stop, so the tests of a package should
// share one, created in TestMain. It ends with the program that started it, even if
// that is killed.
package kubetest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ovn-k8s/test/build"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/netfault"
)

// stopTimeout is the time for a graceful end. Open watches of clients would delay
// it much longer.
const stopTimeout = 5 * time.Second

// Options configure Start.
type Options struct {
	// Dir keeps the cluster's state. Default: a temporary directory, removed by
	// Close. A later Start with the same Dir continues the same cluster.
	Dir string
	// Bind is the address to listen on. Default: 127.0.0.1.
	Bind string
	// Advertise is the endpoint address of the Service "kubernetes". Default: Bind.
	// A loopback address is not advertised: the Service has no endpoint then.
	Advertise string
	// Port is the port to listen on. Default: the port of the last Start with Dir, or a free one.
	Port int
	// Names are additional names and addresses for the server's certificate.
	Names []string
	// ServiceCIDR and PodCIDR are comma-separated prefixes. Defaults: 10.96.0.0/16,
	// and none (Node.spec.podCIDR stays empty).
	ServiceCIDR, PodCIDR string
	// Without lists components not to start: "kube-controller-manager",
	// "kube-scheduler". Without the former there are no service accounts.
	Without []string
	// Unlimited lifts the API server's limits of requests in flight.
	Unlimited bool
	// APIServerArgs are additional arguments of kube-apiserver.
	APIServerArgs []string
	// Log receives one line for each step of a long build. It may be nil.
	Log func(line string)
}

// A Cluster is a control plane. Restart does not change its fields.
type Cluster struct {
	Dir        string
	URL        string // of Bind and Port
	Token      string // the administrator's
	CAFile     string
	Kubeconfig string // the administrator's

	args   []string
	remove bool // remove Dir on Close
	client *kubernetes.Clientset
	cmd    *exec.Cmd // nil: stopped
	stdin  io.Closer
	done   chan struct{}
	err    error // valid when done is closed
}

// Missing names a prerequisite of Start missing on this machine, or is "".
func Missing() string {
	if _, err := exec.LookPath("go"); err != nil {
		return "go, to build the control plane"
	}
	return ""
}

// Flags are the flags of go build for the control plane of release, such as "1.29",
// or of the newest one if it is "".
func Flags(release string) []string {
	if release == "" {
		return nil
	}
	return []string{"-modfile=kubernetes-" + release + ".mod", "-tags=kubernetes" + release}
}

// Release is the release of the control plane: $OVNK8S_TEST_KUBERNETES, such as "1.29", or "".
func Release() string { return os.Getenv("OVNK8S_TEST_KUBERNETES") }

// Has reports whether the control plane has what Kubernetes has since release, such as "1.33".
func Has(release string) bool {
	return Release() == "" || version.MustParseGeneric(Release()).AtLeast(version.MustParseGeneric(release))
}

// ServiceCIDRs is the first release with ServiceCIDRs by default.
const ServiceCIDRs = "1.33"

// Lacks says why a test of a feature that Kubernetes has since release, such as "1.33", does not fit an older control plane. It
// returns "" if it fits.
func Lacks(feature, release string) string {
	if Has(release) {
		return ""
	}
	return fmt.Sprintf("Kubernetes %s has no %s: they came with %s", Release(), feature, release)
}

// Build builds kcluster of Release and returns its path. The first build takes about
// five minutes on two cores, later ones about a second. log receives progress line by
// line; it may be nil.
func Build(ctx context.Context, log func(line string)) (string, error) {
	dir, err := build.Run(ctx, build.Target{
		Module:   filepath.Join("test", "controlplane"),
		Packages: []string{"./cmd/kcluster"},
		Subdir:   Release(),
		Flags:    append(Flags(Release()), "-trimpath"),
		Env:      []string{"CGO_ENABLED=0"},
		Log:      log,
	})
	return filepath.Join(dir, "kcluster"), err
}

// Start builds the control plane if needed, starts it, and returns when pods can be
// created. The caller must Close it.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	program, err := Build(ctx, o.Log)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Dir: o.Dir}
	if c.Dir == "" {
		if c.Dir, err = os.MkdirTemp("", "kube"); err != nil {
			return nil, err
		}
		c.remove = true
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "port")); o.Port == 0 && err != nil { // no earlier Start on this Dir
		if o.Port, err = netfault.FreePort(cmp.Or(o.Bind, "127.0.0.1")); err != nil {
			return nil, err
		}
	}
	c.args = append([]string{program, "-dir", c.Dir}, o.args()...)
	if err := c.Restart(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// args returns kcluster's command line for o.
func (o Options) args() []string {
	var args []string
	add := func(flag string, values ...string) {
		for _, v := range values {
			if v != "" && v != "0" {
				args = append(args, flag, v)
			}
		}
	}
	add("-bind", o.Bind)
	add("-advertise", o.Advertise)
	add("-port", strconv.Itoa(o.Port))
	add("-name", o.Names...)
	add("-service-cidr", o.ServiceCIDR)
	add("-pod-cidr", o.PodCIDR)
	add("-without", o.Without...)
	add("-apiserver-arg", o.APIServerArgs...)
	if o.Unlimited {
		add("-apiserver-arg", "--max-requests-inflight=0", "--max-mutating-requests-inflight=0",
			"--enable-priority-and-fairness=false")
	}
	return args
}

// Restart stops the control plane, if it runs, and starts it with the same data,
// certificates and port. It returns when it is ready.
func (c *Cluster) Restart(ctx context.Context) error {
	c.Stop()
	err := c.start(ctx)
	if err != nil && etcdPortTaken(c.complaint()) {
		c.Kill()
		err = c.start(ctx) // with other ports
	}
	if err != nil {
		c.Kill()
		return fmt.Errorf("starting a control plane: %w: %s", err, c.complaint())
	}
	return nil
}

// etcdPortTaken reports whether kcluster ended because another process took a port between kcluster's search for a free one
// and etcd's use of it.
func etcdPortTaken(complaint string) bool {
	return strings.Contains(complaint, "starting etcd: ") && strings.HasSuffix(complaint, "address already in use")
}

// start starts the process and waits for its readiness line.
func (c *Cluster) start(ctx context.Context) error {
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.args[0], c.args[1:]...)
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.cmd, c.stdin, c.done = cmd, stdin, make(chan struct{})
	ready := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		ready <- line
		c.err = cmd.Wait()
		close(c.done)
	}()
	select {
	case line := <-ready:
		if line == "" {
			<-c.done
			return fmt.Errorf("it ended: %w", c.err)
		}
		return c.connect(line)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connect reads the control plane's readiness line and creates the client.
func (c *Cluster) connect(line string) error {
	var said struct{ Kubeconfig, URL, Token, CA string }
	if err := json.Unmarshal([]byte(line), &said); err != nil {
		return fmt.Errorf("reading what kcluster says: %w", err)
	}
	c.Kubeconfig, c.URL, c.Token, c.CAFile = said.Kubeconfig, said.URL, said.Token, said.CA
	client, err := kubernetes.NewForConfig(c.Config())
	c.client = client
	return err
}

// Stop ends the control plane gracefully, kills it after stopTimeout, and waits for
// its end. The clients' connections break; the data stays.
func (c *Cluster) Stop() {
	if c.cmd == nil {
		return
	}
	_ = c.stdin.Close() // the signal to end
	select {
	case <-c.done:
	case <-time.After(limit.Of(stopTimeout)):
	}
	c.Kill()
}

// Kill kills the control plane with SIGKILL. The data stays.
func (c *Cluster) Kill() {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Kill() // an error means that it has ended already
	<-c.done
	c.cmd = nil
}

// Freeze stops the control plane with SIGSTOP until Thaw: its connections stay open without answers.
func (c *Cluster) Freeze() error { return c.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (c *Cluster) Thaw() error { return c.cmd.Process.Signal(syscall.SIGCONT) }

// Close kills the control plane and removes its directory if Start created it.
func (c *Cluster) Close() {
	c.Kill()
	if c.remove {
		_ = os.RemoveAll(c.Dir)
	}
}

// Config is the administrator's client configuration, without client-side rate limits.
func (c *Cluster) Config() *rest.Config {
	return &rest.Config{
		Host:            c.URL,
		BearerToken:     c.Token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.CAFile},
		QPS:             -1,
	}
}

// Client is the administrator's client.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

func (c *Cluster) logFile() string { return filepath.Join(c.Dir, "kcluster.log") }

// complaint returns the last error line of kcluster's log, if any.
func (c *Cluster) complaint() string {
	text, err := os.ReadFile(c.logFile())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.HasPrefix(lines[i], "kcluster: ") {
			return lines[i]
		}
	}
	return "see " + c.logFile()
}
