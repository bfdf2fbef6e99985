package cni

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"ovn-k8s/lib/cni/protocol"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
)

// checkTimeout is the «reasonable convergence delay» of the specification, after ADD and after restarts of Open
// vSwitch or ovn-controller.
const checkTimeout = 5 * time.Second

// check returns an error unless the attachment is as ADD has left it.
func (n *node) check(ctx context.Context, args *skel.CmdArgs, conf *types.PluginConf) error {
	previous, err := parsePrevious(conf)
	if err != nil {
		return err
	}
	pod, err := parsePod(args.Args)
	if err != nil {
		return err
	}
	if err := n.usable(); err != nil {
		return err
	}
	a, err := newAttachment(args, conf).settled()
	if err != nil {
		return err
	}
	ns, err := a.open()
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	want, ok := expected(previous, a.ifname)
	if !ok {
		return types.NewError(types.ErrInvalidNetworkConfig, "prevResult lacks the interface "+a.ifname, "")
	}
	if err := a.checkKernel(ns, want); err != nil {
		n.reportDefect(err)
		return types.NewError(protocol.Failed, "the container's interface is not as it was made", oneLine(err))
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := n.sw.WaitInstalled(ctx, a.host(), names.PodPort(pod.namespace, pod.name)); err != nil {
		return types.NewError(protocol.Failed, "the pod is not connected", oneLine(err))
	}
	return nil
}

// checkKernel compares the veth pair and the container's interface with the result of ADD. Later plugins, such as
// tuning, and the pod may change the rest; see link.Lacks.
func (a attachment) checkKernel(ns *link.Namespace, want link.State) error {
	joined, err := link.Veth{Host: a.host(), Container: a.ifname}.Joined(ns)
	if err != nil {
		return err
	}
	if !joined {
		return fmt.Errorf("veth pair of %s on the host and %s in the container not found", a.host(), a.ifname)
	}
	var lacks []string
	err = ns.Do(func() (err error) {
		lacks, err = link.Lacks(want)
		return err
	})
	if err == nil && len(lacks) > 0 {
		err = errors.New("missing: " + strings.Join(lacks, ", "))
	}
	return err
}
