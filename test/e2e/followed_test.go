package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/names"
	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/world"
)

func (f *follower) sh(script string) string {
	f.Helper()
	return sh(f.T, f.Node, script)
}

// eventually waits until check returns "".
func (f *follower) eventually(what string, check func() string) {
	f.Helper()
	for end := time.Now().Add(patience / 3); ; time.Sleep(50 * time.Millisecond) {
		why := check()
		if why == "" {
			return
		}
		if time.Now().After(end) {
			f.Errorf("not within %v: %s: %s", patience/3, what, why)
			return
		}
	}
}

// mark begins a new part of the logs.
func (f *follower) mark() {
	for r, file := range f.logs {
		text, _ := os.ReadFile(f.Path(file))
		f.read[r] = len(text)
	}
}

// news is the text of a log since mark.
func (f *follower) news(r config.Reader) string {
	text, _ := os.ReadFile(f.Path(f.logs[r]))
	return string(text[min(f.read[r], len(text)):])
}

func (f *follower) logged(r config.Reader, text string) func() string {
	return func() string {
		if news := f.news(r); !strings.Contains(news, text) {
			return fmt.Sprintf("no %q in %s", text, news)
		}
		return ""
	}
}

// told waits for the log to name the setting and the next step.
func (f *follower) told(r config.Reader, set config.Setting) func() string {
	line, by := "setting "+set.Name+": now ", config.Helper
	switch r {
	case config.Watcher, config.Helper:
		line, by = "followed by the "+string(r), r
	case config.Restart:
		line = "restart this program to use it"
	default:
		line = " again to use it there"
	}
	return func() string {
		for l := range strings.Lines(f.news(by)) {
			if strings.Contains(l, "setting "+set.Name+": now ") && strings.Contains(l, line) && (by == r || r == config.Restart || strings.Contains(l, string(r))) {
				return ""
			}
		}
		return "not in the log: " + f.news(by)
	}
}

// shell succeeds when the output of a script contains a text.
func (f *follower) shell(script, want string) func() string {
	return func() string {
		out, err := f.Script(context.Background(), script)
		if err != nil || !strings.Contains(out, want) {
			return fmt.Sprintf("%v: no %q in %s", err, want, out)
		}
		return ""
	}
}

func not(check func() string) func() string {
	return func() string {
		if check() == "" {
			return "it is there"
		}
		return ""
	}
}

// rules: there is a rule or an element of the program that the hosts use.
func (f *follower) rules(iptables, nftables string) func() string {
	if host.Firewall() == config.NFTables {
		return f.shell("nft list table ip ovn-k8s", nftables)
	}
	return f.shell("iptables-save", iptables)
}

func otherFirewall() string {
	if host.Firewall() == config.NFTables {
		return config.IPTables
	}
	return config.NFTables
}

// moved: the rules of the Service have moved from one program to the other. They stay on a host that lacks the other.
func (f *follower) moved() string {
	if host.WithoutIPTables() {
		if why := f.shell("ovs-appctl -t ovn-k8s-gateway-helper reconcile/show", "install the package iptables")(); why != "" {
			return why
		}
		return f.shell("nft list table ip ovn-k8s", "followed")()
	}
	own, other := f.shell("iptables-save", "followed"), f.shell("nft list table ip ovn-k8s", "followed")
	if host.Firewall() == config.NFTables {
		own, other = other, own
	}
	if own() == "" {
		return "rules of the former program are left"
	}
	return other()
}

// spared: the host's own connections to a server are not those to a Service with its address.
func (f *follower) spared(port int) func() string {
	return f.rules(fmt.Sprintf("-d %v/32 -p tcp -m tcp --dport %d -j RETURN", f.outside, port), fmt.Sprintf("%v . tcp . %d", f.outside, port))
}

// connected: a program has a connection to a TCP port of the host outside.
func (f *follower) connected(program string, port int) func() string {
	return f.shell(fmt.Sprintf("ss -Htnp dst %v:%d", f.outside, port), program[:15])
}

// requested: a program has sent a request with a token, "" for any.
func (f *follower) requested(program, token string) func() string {
	return func() string { return f.kube.missing(program, token) }
}

// pod makes a pod here, waits until it runs, and returns the result of check for it.
func (f *follower) pod(check func(world.Endpoint) string) func() string {
	return func() string {
		f.pods++
		name := fmt.Sprint("follower-", f.pods)
		if _, err := cluster.Kube.CreatePod(f.Context(), "default", name, f.Node.Name, nil); err != nil {
			return err.Error()
		}
		defer func() {
			_ = cluster.Kube.Client().CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{})
		}()
		ctx, cancel := context.WithTimeout(f.Context(), limit.Of(20*time.Second))
		defer cancel()
		e, err := cluster.AwaitPod(ctx, "default", name)
		if err != nil {
			return fmt.Sprint(name, ": ", err)
		}
		return check(e)
	}
}

// failing makes a pod here that the plugin cannot connect; its log has a text with the pod's name then.
func (f *follower) failing(text string) func() string {
	return func() string {
		f.pods++
		name := fmt.Sprint("follower-", f.pods)
		if _, err := cluster.Kube.CreatePod(f.Context(), "default", name, f.Node.Name, nil); err != nil {
			return err.Error()
		}
		defer func() {
			_ = cluster.Kube.Client().CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{})
		}()
		f.eventually("the plugin fails", f.logged(config.Plugin, strings.ReplaceAll(text, "POD", name)))
		return ""
	}
}

// frozen is the result of check while the daemon of a pidfile stands still.
func (f *follower) frozen(pidfile string, check func() string) func() string {
	return func() string {
		if err := f.Freeze(f.Context(), pidfile); err != nil {
			return err.Error()
		}
		defer func() {
			if err := f.Thaw(f.Context(), pidfile); err != nil {
				f.Error(err)
			}
		}()
		return check()
	}
}

func contained(text, want string) string {
	if strings.Contains(text, want) {
		return ""
	}
	return fmt.Sprintf("no %q in %s", want, text)
}

// restarted: the log asks for a restart, and after one of the helper there is a file.
func (f *follower) restarted(setting, prepare, file string) func() string {
	return func() string {
		f.eventually("the log asks for a restart", f.told(config.Restart, f.set[setting]))
		f.sh(prepare)
		f.startHelper()
		f.eventually(file, f.shell("ls "+file, file))
		f.use(map[string]string{})
		f.startHelper()
		return ""
	}
}

// leads: the Lease in a namespace has a holder with that name, and the copy of the topology is beside it.
func (f *follower) leads(namespace, holder string) func() string {
	return func() string {
		l, err := cluster.Kube.Client().CoordinationV1().Leases(namespace).Get(f.Context(), names.WatcherLease, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if _, err := cluster.Kube.Client().CoreV1().ConfigMaps(namespace).Get(f.Context(), names.TopologyConfigMap, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
			return "nobody has the Lease"
		}
		return contained(*l.Spec.HolderIdentity, holder)
	}
}

// account returns another token of a service account.
func (f *follower) account(name string) string {
	f.Helper()
	token, err := cluster.Kube.ServiceAccountToken(f.Context(), metav1.NamespaceSystem, name)
	if err != nil {
		f.Fatal(err)
	}
	return token
}
