package gateway

import (
	"context"
	"time"

	"ovn-k8s/lib/nftables"
)

// kubeProxyInterval is the interval of searches for rules of kube-proxy.
const kubeProxyInterval = 10 * time.Minute

// warnOfKubeProxy reports rules of kube-proxy beside ours until ctx ends: both would serve the same Services, and each
// connection would match either.
func (e *engine) warnOfKubeProxy(ctx context.Context, node string) {
	ticker := time.NewTicker(kubeProxyInterval)
	defer ticker.Stop()
	for told := ""; ; {
		found := e.kubeProxy(ctx)
		if found != "" && found != told {
			text := "node " + node + ": kube-proxy has rules here (" + found + "), so that connections to Services go either way: remove its DaemonSet, and run \"kube-proxy --cleanup\" on the node"
			e.log.Warn(text)
			e.warnNode("KubeProxyFound", text)
		}
		told = found
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// kubeProxy returns the place of kube-proxy's rules, "" if there are none or they cannot be read.
func (e *engine) kubeProxy(ctx context.Context) string {
	for _, f := range e.firewall {
		if f.tool.HasKubeProxy() {
			return "iptables, chain KUBE-SERVICES"
		}
	}
	if rules, err := nftables.Read(ctx); err == nil && rules.HasKubeProxy() {
		return "nftables, table kube-proxy"
	}
	return ""
}
