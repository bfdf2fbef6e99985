// Package kubetest runs a real Kubernetes control plane for tests: the program
// kcluster of the nested module test/controlplane, as a process of its own.
//
// It takes no *testing.T, so that scripts, tests and the demo all use it. A
// cluster takes three seconds to start and one to stop, so the tests of a
// package had better share one, made in TestMain. It ends with the program that
// started it, however that ends.
package kubetest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ovn-k8s/test/build"
	"ovn-k8s/test/wire"
)

// stopTimeout is how long a control plane gets to end by itself. It would wait
// much longer for clients that watch something.
const stopTimeout = 5 * time.Second

// Options say how to start a Cluster.
type Options struct {
	// Dir keeps the cluster's state: a temporary directory that Close removes
	// unless set. A later Start on the same Dir continues the same cluster.
	Dir string
	// Bind is the address to listen on: 127.0.0.1 unless set.
	Bind string
	// Advertise is the address of the Service "kubernetes": Bind unless set. It
	// must not be a loopback address if pods are to reach it.
	Advertise string
	// Port is the port to listen on: a free one unless set.
	Port int
	// Names are further names and addresses for the server's certificate.
	Names []string
	// ServiceCIDR and PodCIDR are comma-separated prefixes: 10.96.0.0/16 and
	// none, that is Node.spec.podCIDR stays empty, unless set.
	ServiceCIDR, PodCIDR string
	// Without lists components that shall not run: "kube-controller-manager",
	// "kube-scheduler". Without the former there are no service accounts.
	Without []string
	// Unlimited lifts the API server's limits of requests in flight.
	Unlimited bool
	// APIServerArgs are further arguments of kube-apiserver.
	APIServerArgs []string
	// Log receives one line per step of a long build. It may be nil.
	Log func(line string)
}

// A Cluster is a control plane. All fields stay the same over a Restart.
type Cluster struct {
	Dir        string
	URL        string // as Bind and Port say
	Token      string // the administrator's
	CAFile     string
	Kubeconfig string // the administrator's

	args   []string
	remove bool // Dir, at Close
	client *kubernetes.Clientset
	cmd    *exec.Cmd // nil: stopped
	stdin  io.Closer
	done   chan struct{}
	err    error // valid when done is closed
}

// Missing names what Start would miss on this machine, or is "".
func Missing() string {
	if _, err := exec.LookPath("go"); err != nil {
		return "go, to build the control plane"
	}
	return ""
}

// Build builds kcluster and returns its path. The first build takes about five
// minutes on two cores, later ones about a second. Progress goes to log line by
// line, which may be nil.
func Build(ctx context.Context, log func(line string)) (string, error) {
	dir, err := build.Run(ctx, build.Target{
		Module:   filepath.Join("test", "controlplane"),
		Packages: []string{"./cmd/kcluster"},
		Flags:    []string{"-trimpath"},
		Env:      []string{"CGO_ENABLED=0"},
		Log:      log,
	})
	return filepath.Join(dir, "kcluster"), err
}

// Start builds the control plane if needed, starts it, and returns when pods can
// be created. Its user must Close it.
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
	if _, err := os.Stat(filepath.Join(c.Dir, "port")); o.Port == 0 && err != nil { // there is no last one
		if o.Port, err = wire.FreePort(cmp.Or(o.Bind, "127.0.0.1")); err != nil {
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

// args spells o as kcluster's command line.
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
	if err := c.start(ctx); err != nil {
		c.Kill()
		return fmt.Errorf("starting a control plane: %w: %s", err, c.complaint())
	}
	return nil
}

// start starts the process and waits for the line that says it is ready.
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

// connect takes what the control plane says about itself.
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

// Stop lets the control plane end by itself, kills it if that takes long, and
// waits for its end. The clients' connections break; the data stays.
func (c *Cluster) Stop() {
	if c.cmd == nil {
		return
	}
	_ = c.stdin.Close() // the sign to end
	select {
	case <-c.done:
	case <-time.After(stopTimeout):
	}
	c.Kill()
}

// Kill kills the control plane, as by kill -9. The data stays.
func (c *Cluster) Kill() {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Kill() // it may have ended: that is what we want
	<-c.done
	c.cmd = nil
}

// Freeze stops the control plane by SIGSTOP until Thaw: its connections stay, and nobody answers.
func (c *Cluster) Freeze() error { return c.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (c *Cluster) Thaw() error { return c.cmd.Process.Signal(syscall.SIGCONT) }

// Close kills the control plane and removes its directory if Start made it.
func (c *Cluster) Close() {
	c.Kill()
	if c.remove {
		_ = os.RemoveAll(c.Dir)
	}
}

// Config is the administrator's way in, without client-side limits.
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

// complaint is the last line that kcluster itself wrote, if any.
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

// await polls until done returns no error or ctx ends.
func await(ctx context.Context, done func() error) error {
	for {
		err := done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
