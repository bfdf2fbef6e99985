package gateway

import (
	"context"
	"time"
)

// kubeProxyInterval is how often the helper looks for rules of kube-proxy.
const kubeProxyInterval = 10 * time.Minute

// warnOfKubeProxy tells of rules of kube-proxy beside ours, until ctx ends: both would serve the same Services, and
// connections take either way.
func (e *engine) warnOfKubeProxy(ctx context.Context, node string) {
	ticker := time.NewTicker(kubeProxyInterval)
	defer ticker.Stop()
	for told := false; ; {
		found := false
		for _, f := range e.firewall {
			found = found || f.tool.HasKubeProxy()
		}
		if found && !told {
			text := "node " + node + ": kube-proxy has rules here (iptables, chain KUBE-SERVICES), so that connections to Services go either way: remove its DaemonSet, and run \"kube-proxy --cleanup\" on the node"
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
