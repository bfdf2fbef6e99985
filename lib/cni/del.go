package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// del removes all existing parts of an attachment. It needs only the container's ID and the interface's name.
//
// DEL succeeds without Open vSwitch's database, so that a stopped Open vSwitch does not block the deletion of pods.
// The port left in the database has no device, so no traffic reaches it; the next DEL or GC sweeps it. The same holds for a
// database that cannot write its file: perhaps the disk is full of the pod's files, and they go after DEL only.
func (n *node) del(ctx context.Context, args *skel.CmdArgs, conf *types.PluginConf) error {
	a := newAttachment(args, conf)
	if n.sw == nil {
		n.log.WithField("container", a.container).Warnf("leaving the port in the database: %v", n.problem)
	}
	detaching, err := n.removeParts(ctx, a)
	if err == nil && errors.As(detaching, new(*libovsdb.IOError)) {
		n.log.WithField("container", a.container).Warnf("leaving the port in the database, has it a full disk? %v", oneLine(detaching))
		return nil
	}
	if err := errors.Join(detaching, err); err != nil {
		return types.NewError(types.ErrTryAgainLater, "removing the interface", oneLine(err))
	}
	if n.sw != nil {
		n.sweep(ctx)
	}
	return nil
}

// remove removes an attachment: its port, its limits, its veth pair, its link in /var/run/netns. Missing parts are
// not an error.
func (n *node) remove(ctx context.Context, a attachment) error {
	return errors.Join(n.removeParts(ctx, a))
}

// removeParts is remove with two errors: the database's, and the rest's.
func (n *node) removeParts(ctx context.Context, a attachment) (detaching, other error) {
	a, err := a.settled()
	if n.sw != nil {
		var detached []string
		detached, detaching = n.sw.DetachWhere(ctx, a.owns)
		if len(detached) > 0 {
			n.log.WithFields(logrus.Fields{"container": a.container, "interface": detached[0]}).Info("detached")
		}
	}
	return detaching, errors.Join(err, a.unplug())
}

// unplug removes the veth pair and the link in /var/run/netns.
func (a attachment) unplug() error {
	alias, ok, err := link.HostEnd(a.host())
	errs := []error{err}
	if ok {
		// without an alias it is left over from a killed ADD: the name identifies the container
		if owner, named := parseAlias(alias); !named || (owner.container == a.container && owner.ifname == a.ifname) {
			errs = append(errs, link.Delete(a.host()))
		} else {
			return errors.Join(errs...) // the link belongs to another interface of the container
		}
	}
	errs = append(errs, unlinkNetns(a.container))
	return errors.Join(errs...)
}

// owns reports whether a port belongs to the attachment. A port of the Python version, left over from before an
// upgrade, is recognized by its name and MAC only.
func (a attachment) owns(i vswitch.Interface) bool {
	ids := i.ExternalIDs
	if ids[names.CNINetwork] == "" {
		return i.Name == a.host() && ids[names.AttachedMAC] != "" && ids[names.IfaceID] != ""
	}
	return ids[names.Sandbox] == a.container && ids[names.CNIInterface] == a.ifname
}

// deleteHostEnd deletes one of our veth pairs.
func (n *node) deleteHostEnd(name string) error {
	if _, ok, err := link.HostEnd(name); !ok || err != nil {
		return err
	}
	return link.Delete(name)
}

// unlinkNetns removes the symbolic link created by linkNetns, never a namespace.
func unlinkNetns(container string) error {
	path := filepath.Join(netnsDir, container)
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		return nil // missing, or not a symbolic link
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("removing the name of the network namespace: %w", err)
	}
	return nil
}

// sweep removes our ports whose device and network namespace are both gone, for example of pods from before a reboot,
// or deleted while Open vSwitch was down. Errors are only logged, since they do not concern this DEL.
func (n *node) sweep(ctx context.Context) {
	swept, err := n.sw.DetachWhere(ctx, func(i vswitch.Interface) bool {
		// check the file first: most ports have one, and it is cheap
		if i.ExternalIDs[names.CNINetwork] == "" || exists(i.ExternalIDs[names.CNINetns]) {
			return false
		}
		device, err := link.Exists(i.Name)
		return err == nil && !device
	})
	if err != nil {
		n.log.Warnf("sweeping: %v", err)
	}
	for _, name := range swept {
		n.log.WithField("interface", name).Info("swept a port without device")
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// gc removes the network's attachments missing from the runtime's list. The runtime runs no ADD at the same time (CNI
// specification, section 3).
func (n *node) gc(ctx context.Context, args *skel.CmdArgs, conf *types.PluginConf) error {
	if err := listsAttachments(args.StdinData); err != nil {
		return err
	}
	valid := map[attachment]bool{}
	hosts := map[string]bool{}
	for _, v := range conf.ValidAttachments {
		a := attachment{container: v.ContainerID, ifname: v.IfName}
		valid[a] = true
		hosts[names.HostVeth(a.container)], hosts[names.UniqueHostVeth(a.container)] = true, true
	}
	stale, err := n.staleAttachments(ctx, conf.Name, valid)
	errs := []error{err}
	for _, a := range stale {
		errs = append(errs, n.remove(ctx, a))
	}
	errs = append(errs, n.removeUnnamed(hosts))
	if n.sw == nil {
		errs = append(errs, n.problem)
	} else {
		n.sweep(ctx)
	}
	if err := errors.Join(errs...); err != nil {
		return types.NewError(types.ErrTryAgainLater, "collecting garbage", oneLine(err))
	}
	return nil
}

// listsAttachments returns an error if the list is missing. A missing list must not be treated as empty: it would
// remove everything.
func listsAttachments(stdin []byte) error {
	var conf map[string]json.RawMessage
	if err := json.Unmarshal(stdin, &conf); err != nil {
		return types.NewError(types.ErrDecodingFailure, "decoding the network configuration", err.Error())
	}
	if _, ok := conf["cni.dev/valid-attachments"]; !ok {
		return types.NewError(types.ErrInvalidNetworkConfig, "the network configuration lacks cni.dev/valid-attachments", "")
	}
	return nil
}

// staleAttachments lists a network's attachments missing from valid, found in the database and by the aliases of
// interfaces.
func (n *node) staleAttachments(ctx context.Context, network string, valid map[attachment]bool) ([]attachment, error) {
	stale := map[attachment]bool{}
	note := func(of, container, ifname string) {
		a := attachment{container: container, ifname: ifname}
		if of == network && !valid[a] {
			stale[a] = true
		}
	}
	var errs []error
	if n.sw != nil {
		all, err := n.sw.Interfaces(ctx)
		errs = append(errs, err)
		for _, i := range all {
			note(i.ExternalIDs[names.CNINetwork], i.ExternalIDs[names.Sandbox], i.ExternalIDs[names.CNIInterface])
		}
	}
	ends, err := link.HostEnds()
	errs = append(errs, err)
	for _, alias := range ends {
		if a, ok := parseAlias(alias); ok {
			note(a.network, a.container, a.ifname)
		}
	}
	var list []attachment
	for a := range stale {
		list = append(list, a)
	}
	return list, errors.Join(errs...)
}

// removeUnnamed deletes veth pairs left by an ADD killed before it had set the alias.
func (n *node) removeUnnamed(valid map[string]bool) error {
	ends, err := link.HostEnds()
	errs := []error{err}
	for name, alias := range ends {
		if _, ok := parseAlias(alias); !ok && !valid[name] {
			errs = append(errs, link.Delete(name))
		}
	}
	return errors.Join(errs...)
}
