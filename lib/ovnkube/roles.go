package ovnkube

import (
	"ovn-k8s/lib/gateway"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/watcher"
)

// masterRole is the role of --init-master.
func masterRole(o Options, share kube.Sharing) role {
	w := &watcher.Watcher{Options: watcher.Options{Flags: o.Flags, Log: o.Log, Out: o.Out, Informers: share}}
	return role{w.Role(), w.Commands()}
}

// nodeRole is the role of --init-node for the Node name.
func nodeRole(o Options, share kube.Sharing, name string) role {
	h := &gateway.Helper{Options: gateway.Options{Flags: o.Flags, Log: o.Log, Node: name, Informers: share}}
	r := role{h.Role(), h.Commands()}
	r.Beside = nil // it is about the token of a plugin that reads it itself
	return r
}
