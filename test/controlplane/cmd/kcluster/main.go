// kcluster is a complete Kubernetes control plane in one process.
//
// When it is ready it prints one line of JSON with the members kubeconfig, url,
// token and ca. It ends on SIGTERM, on SIGINT and at the end of its standard input,
// so it never outlives its parent. A later run with the same directory continues
// the same cluster.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"ovn-k8s/test/controlplane"
)

// garbage is the garbage allowed in percent of the live heap: tests have less time than memory.
const garbage = 400

func main() {
	debug.SetGCPercent(garbage)
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "kcluster: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until its end
		cancel()
	}()
	opts, err := parse(args)
	if err != nil {
		return err
	}
	cluster, err := controlplane.Start(ctx, opts)
	if err != nil {
		return err
	}
	defer cluster.Stop()
	ready := map[string]string{
		"kubeconfig": cluster.Kubeconfig, "url": cluster.URL, "token": cluster.Token, "ca": cluster.CAFile,
	}
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-cluster.Died():
		return err
	}
}

// parse parses the command line.
func parse(args []string) (controlplane.Options, error) {
	var o controlplane.Options
	fs := flag.NewFlagSet("kcluster", flag.ContinueOnError)
	fs.StringVar(&o.Dir, "dir", "", "`directory` of the state")
	fs.TextVar(&o.Bind, "bind", netip.AddrFrom4([4]byte{127, 0, 0, 1}), "`address` to listen on")
	fs.TextVar(&o.Advertise, "advertise", netip.Addr{}, "`address` of the Service \"kubernetes\" (default: the bind address)")
	fs.IntVar(&o.Port, "port", 0, "`port` to listen on (default: the last one, or a free one)")
	fs.Func("name", "further `name` or address for the server's certificate; may be repeated", each(&o.Names))
	fs.Func("service-cidr", "one or two `prefixes` of Services (default 10.96.0.0/16)", prefixes(&o.ServiceCIDRs))
	fs.Func("pod-cidr", "one or two `prefixes` for Node.spec.podCIDRs (default: none)", prefixes(&o.PodCIDRs))
	fs.Func("without", "`component` not to start: kube-controller-manager or kube-scheduler; may be repeated", each(&o.Without))
	fs.Func("apiserver-arg", "further `argument` of kube-apiserver; may be repeated", each(&o.APIServerArgs))
	fs.Func("controller-manager-arg", "further `argument` of kube-controller-manager; may be repeated", each(&o.ControllerManagerArgs))
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	o.Log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	return o, nil
}

// each returns a flag function appending to list.
func each(list *[]string) func(string) error {
	return func(s string) error {
		*list = append(*list, s)
		return nil
	}
}

// prefixes returns a flag function parsing a comma-separated list.
func prefixes(list *[]netip.Prefix) func(string) error {
	return func(s string) error {
		for text := range strings.SplitSeq(s, ",") {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return err
			}
			*list = append(*list, p)
		}
		return nil
	}
}
