package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	manageroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

const serviceAccountIssuer = "https://kubernetes.default.svc.cluster.local"

// startEtcd starts etcd on two free loopback ports. They may differ from those of
// an earlier start: a single member needs no stable peer address.
func (c *Cluster) startEtcd(ctx context.Context) error {
	client, err := loopbackURL()
	if err != nil {
		return err
	}
	peer, err := loopbackURL()
	if err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Dir = filepath.Join(c.opts.Dir, "etcd")
	config.Logger, config.LogLevel = "zap", "error"
	config.LogOutputs = []string{filepath.Join(c.opts.Dir, "etcd.log")}
	config.QuotaBackendBytes = 8 << 30 // for the largest benchmark: 100 000 pods, each written several times
	config.UnsafeNoFsync = true        // the data need not survive a crash of the machine
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	if c.etcd, err = embed.StartEtcd(config); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	select {
	case <-c.etcd.Server.ReadyNotify():
		return nil
	case err := <-c.etcd.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startAPIServer starts the API server and waits until it is ready.
func (c *Cluster) startAPIServer(ctx context.Context) error {
	options := apiserveroptions.NewServerRunOptions()
	if err := parse(options.Flags(), append(c.apiServerArgs(), c.opts.APIServerArgs...)); err != nil {
		return err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	run, err := completeAPIServer(ctx, options)
	if err != nil {
		return err
	}
	c.run(ctx, "kube-apiserver", run)
	return c.awaitReady(ctx)
}

func (c *Cluster) apiServerArgs() []string {
	p := c.pki.path
	args := []string{
		"--etcd-servers=" + c.etcd.Config().ListenClientUrls[0].String(),
		"--bind-address=" + c.opts.Bind.String(),
		"--advertise-address=" + c.opts.Advertise.String(),
		"--secure-port=" + strconv.Itoa(c.opts.Port),
		"--service-cluster-ip-range=" + join(c.opts.ServiceCIDRs),
		"--allow-privileged=true",
		"--tls-cert-file=" + p("apiserver.crt"),
		"--tls-private-key-file=" + p("apiserver.key"),
		"--client-ca-file=" + p("ca.crt"),
		"--token-auth-file=" + p("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=" + serviceAccountIssuer,
		"--service-account-key-file=" + p("sa.key"),
		"--service-account-signing-key-file=" + p("sa.key"),
		"--kubelet-client-certificate=" + p("kubelet-client.crt"),
		"--kubelet-client-key=" + p("kubelet-client.key"),
		"--kubelet-certificate-authority=" + p("ca.crt"),
		"--requestheader-client-ca-file=" + p("front-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + p("front-proxy.crt"),
		"--proxy-client-key-file=" + p("front-proxy.key"),
	}
	if slices.Contains(c.opts.Without, ControllerManager) {
		// this plugin requires service accounts, created by the controller manager
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if c.opts.Advertise.IsLoopback() {
		// no EndpointSlice may have a loopback address, and Kubernetes 1.37 refuses to start
		args = append(args, "--endpoint-reconciler-type=none")
	}
	return args
}

// A managerConfig holds the controller manager's options before its flags are parsed.
type managerConfig struct {
	options *manageroptions.KubeControllerManagerOptions
	flags   cliflag.NamedFlagSets
}

func newManager() (*managerConfig, error) {
	options, err := manageroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, fmt.Errorf("preparing the controller manager: %w", err)
	}
	flags := options.Flags(manager.KnownControllers(), manager.ControllersDisabledByDefault(), manager.ControllerAliases())
	return &managerConfig{options: options, flags: flags}, nil
}

// startManager starts the controller manager and waits until it has created the default service account.
func (c *Cluster) startManager(ctx context.Context, m *managerConfig) error {
	if err := parse(m.flags, append(c.managerArgs(), c.opts.ControllerManagerArgs...)); err != nil {
		return err
	}
	config, err := configureManager(ctx, m.options)
	if err != nil {
		return err
	}
	c.run(ctx, ControllerManager, func() error { return manager.Run(ctx, config.Complete()) })
	return c.awaitServiceAccount(ctx)
}

func (c *Cluster) managerArgs() []string {
	p := c.pki.path
	args := append(c.credentials("controller-manager"),
		"--service-account-private-key-file="+p("sa.key"),
		"--root-ca-file="+p("ca.crt"),
		"--cluster-signing-cert-file="+p("ca.crt"),
		"--cluster-signing-key-file="+p("ca.key"),
		"--use-service-account-credentials=true",
		"--service-cluster-ip-range="+join(c.opts.ServiceCIDRs),
		"--leader-elect=false",
		"--kube-api-qps=300", "--kube-api-burst=600", // with the defaults the first service account takes 5 s
		"--node-monitor-grace-period=24h", // our nodes send no heartbeats
		"--flex-volume-plugin-dir="+filepath.Join(c.opts.Dir, "flex"),
		"--cert-dir="+filepath.Join(c.opts.Dir, "controller-manager"),
	)
	if len(c.opts.PodCIDRs) == 0 {
		return args
	}
	return append(args, "--allocate-node-cidrs=true", "--cluster-cidr="+join(c.opts.PodCIDRs))
}

func (c *Cluster) startScheduler(ctx context.Context) error {
	options := scheduleroptions.NewOptions()
	if err := parse(*options.Flags, append(c.credentials("scheduler"), "--leader-elect=false")); err != nil {
		return err
	}
	config, sched, err := scheduler.Setup(ctx, options)
	if err != nil {
		return err
	}
	c.run(ctx, Scheduler, func() error { return scheduler.Run(ctx, config, sched) })
	return nil
}

// credentials returns the API client flags of a component.
func (c *Cluster) credentials(name string) []string {
	file := filepath.Join(c.opts.Dir, name+".kubeconfig")
	return []string{
		"--kubeconfig=" + file,
		"--authentication-kubeconfig=" + file,
		"--authorization-kubeconfig=" + file,
		"--secure-port=0",
	}
}

// parse parses args with a component's flags.
func parse(sets cliflag.NamedFlagSets, args []string) error {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		all.AddFlagSet(set)
	}
	return all.Parse(args)
}

// settlePort returns the port to listen on and saves it in file: want if not 0,
// else the port saved in file, else a free one.
func settlePort(file string, addr netip.Addr, want int) (int, error) {
	if want == 0 {
		if text, err := os.ReadFile(file); err == nil {
			return strconv.Atoi(strings.TrimSpace(string(text)))
		}
		free, err := freePort(addr)
		if err != nil {
			return 0, err
		}
		want = free
	}
	return want, os.WriteFile(file, fmt.Appendln(nil, want), 0o644)
}

func loopbackURL() (url.URL, error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	port, err := freePort(loopback)
	return url.URL{Scheme: "http", Host: netip.AddrPortFrom(loopback, uint16(port)).String()}, err
}

// freePort asks the kernel for a free port.
func freePort(addr netip.Addr) (int, error) {
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
