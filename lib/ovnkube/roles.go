package ovnkube

import (
	"context"
	"strings"
	"sync"

	"ovn-k8s/lib/cni"
	"ovn-k8s/lib/config"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/ovnkube/cniserver"
	"ovn-k8s/lib/ovnkube/master"
	"ovn-k8s/lib/ovnkube/node"
	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
	"ovn-k8s/lib/watcher"
)

// masterRole is the role of --init-master. accepted is called when it has not refused the cluster it found.
func masterRole(o Options, share kube.Sharing, accepted func()) role {
	w := master.New(watcher.Options{Flags: o.Flags, Log: o.Log, Informers: share, Lease: leaseTimes}, masterSettings, accepted)
	return role{w.Role(), w.Commands(), w.Differences}
}

// leaseTimes are the times of the masters' Lease in a configuration.
func leaseTimes(c config.Config) kube.LeaseTimes {
	return kube.LeaseTimes(options.Of(c).Lease)
}

// masterSettings are the master's own settings in a configuration.
func masterSettings(c config.Config) master.Settings {
	o := options.Of(c)
	return master.Settings{Adopt: o.Adopt, Ranges: o.ClusterSubnets}
}

// nodeRoles are the roles of --init-node for the Node name: the host itself, and the gateway helper.
func nodeRoles(o Options, share kube.Sharing, name string, r settings.Runtime) []role {
	state := func(text string) { r.States.Set(string(options.Node), text) }
	n := &node.Node{Options: node.Options{Name: name, Flags: o.Flags, Server: serveCNI(strings.ToLower(name), r), Log: o.Log, Informers: share, Status: state}}
	h := n.Helper()
	helper := node.HelperRole(h)
	helper.Beside = nil // it is about the token of a plugin that reads it itself
	return []role{{n.Role(), nil, n.Differences}, {helper, h.Commands(), h.Differences}}
}

// hints end errors of CNI requests.
func hints() cni.Hints {
	return cni.Hints{
		Annotation: "is a master of ovnkube running? If it is, another event of the pod says why",
		Bridge:     "is ovn-controller running? The log of ovnkube on this host says what it waits for",
	}
}

// serveCNI returns the CNI server for the pods of a Node.
func serveCNI(name string, r settings.Runtime) node.Server {
	pods := cniserver.NewPods()
	return func(ctx context.Context, s settings.Session, cluster *kube.Cluster, ready func()) error {
		log := settings.Log(r.Log, "cni")
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		server := cniserver.New(cniserver.Options{Settings: served{r, s}, Pods: pods, Switch: s.Switch, Log: log, Hints: hints()})
		wg.Go(func() {
			select {
			case <-server.Ready():
				ready()
				pods.Follow(ctx, cluster, name, log) // each subscription makes all roles list pods again: none without a socket
			case <-ctx.Done():
			}
		})
		return server.Serve(ctx)
	}
}

// served are the settings of a session for CNI requests. Newer ones may be invalid, or refused by a role: until they are right,
// the former ones count.
type served struct {
	settings.Runtime
	session settings.Session
}

// Load returns the settings with the present token.
func (s served) Load(context.Context, *vswitch.Switch) (config.Config, error) {
	c := s.session.Config
	if s.session.Token != nil {
		c.APIToken = config.Secret(s.session.Token())
	}
	return c, nil
}
