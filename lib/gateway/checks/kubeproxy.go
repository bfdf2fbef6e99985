package checks

import (
	"context"
	"time"

	"ovn-k8s/lib/firewall"
	"ovn-k8s/lib/nftables/foreign"
)

// kubeProxyInterval is the interval of searches for rules of kube-proxy.
const kubeProxyInterval = 10 * time.Minute

// FollowKubeProxy calls warn about rules of kube-proxy beside ours, until ctx ends: both would serve the same Services, and each
// connection would match either.
func FollowKubeProxy(ctx context.Context, node string, tools []*firewall.Firewall, warn func(text string)) {
	ticker := time.NewTicker(kubeProxyInterval)
	defer ticker.Stop()
	for told := ""; ; {
		found := kubeProxy(ctx, tools)
		if found != "" && found != told {
			text := "node " + node + ": kube-proxy has rules here (" + found + "), so that connections to Services go either way: remove its DaemonSet, and run \"kube-proxy --cleanup\" on the node"
			warn(text)
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
func kubeProxy(ctx context.Context, tools []*firewall.Firewall) string {
	for _, tool := range tools {
		if tool.HasKubeProxy() {
			return "iptables, chain KUBE-SERVICES"
		}
	}
	if rules, err := foreign.Read(ctx); err == nil && rules.HasKubeProxy() {
		return "nftables, table kube-proxy"
	}
	return ""
}
