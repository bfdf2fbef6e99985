package declare

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/desired/localgateway"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ofctl"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/reconcile"
	"ovn-k8s/lib/settings"
)

const (
	// readTimeout bounds the time for which Failed waits for the database, and idleTimeout for ovs-vswitchd.
	readTimeout = time.Second
	idleTimeout = 10 * time.Second
)

// An Idle is the time since when a helper cannot start, and there is no Monitor. Zero: it can.
type Idle struct {
	Log    *logrus.Entry
	since  time.Time
	logged string // reason of the last error of Failed
}

// Failed declares the gateways of this host down if the helper could not start for DownAfter, or ends because its
// configuration is wrong, and they cannot forward packets. nic is the one named by the configuration, or "".
func (i *Idle) Failed(ctx context.Context, sw *vswitch.Switch, rundir, nic string, why error) {
	if i.since.IsZero() {
		i.since = time.Now()
	}
	if ctx.Err() != nil || !settings.IsWrong(why) && time.Since(i.since) < DownAfter {
		return
	}
	i.report(i.declare(ctx, sw, rundir, nic, why))
}

// report logs each reason once, as long as it does not change.
func (i *Idle) report(err error) {
	switch {
	case err == nil:
		i.logged = ""
	case i.logged != reconcile.Reason(err):
		i.logged = reconcile.Reason(err)
		i.Log.Warnf("declaring the gateway of this host down: %v", err)
	}
}

func (i *Idle) declare(ctx context.Context, sw *vswitch.Switch, rundir, nic string, why error) error {
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	all, err := sw.Interfaces(reading)
	if err != nil {
		return fmt.Errorf("reading Open vSwitch's database: %w", err)
	}
	ctx, cancel = context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	if !forwards(ctx, rundir, nic, all) {
		err = declareDown(ctx, sw, i.Log, names.BridgeMode, why)
	}
	if !forwardsLocally(all) {
		err = errors.Join(err, declareDown(ctx, sw, i.Log, names.LocalMode, why))
	}
	return err
}

// forwards reports whether the bridge shared with a gateway, if there is one, forwards packets without a helper: it has a NIC
// that works, that of the configuration if it names one, and flows of a helper before.
func forwards(ctx context.Context, rundir, nic string, all []vswitch.Interface) bool {
	bridge, nics := SharedBridge(all)
	if bridge == "" {
		return true
	}
	works := slices.ContainsFunc(all, func(i vswitch.Interface) bool {
		return i.Bridge == bridge && slices.Contains(nics, i.Name) && i.Ofport > 0 && (nic == "" || i.Name == nic)
	})
	has, err := ofctl.Bridge{RunDir: rundir, Name: bridge}.Has(ctx, bridgeflows.Cookie)
	return works && (has || err != nil && !errors.Is(err, ofctl.ErrDown))
}

// forwardsLocally reports whether the host's end of a local gateway, if there is one, forwards packets without a helper: its
// addresses and routing are those of a helper before. After a boot both are missing.
func forwardsLocally(all []vswitch.Interface) bool {
	port, there := LocalPort(all)
	if !there {
		return true
	}
	here := addresses(localgateway.Port)
	for word := range strings.SplitSeq(port.ExternalIDs[names.GatewayIPs], ",") {
		router, err := netip.ParsePrefix(word)
		if err != nil {
			continue // made by an earlier release
		}
		there, err := link.PlanNoBypass(router.Addr(), localgateway.Table) // a route, and rules
		if err == nil && len(there) < 2 || !slices.ContainsFunc(here, func(p netip.Prefix) bool { return p.Masked() == router.Masked() }) {
			return false
		}
	}
	return slices.ContainsFunc(here, func(p netip.Prefix) bool { return p.Addr().Is4() || !p.Addr().IsLinkLocalUnicast() })
}

// addresses lists those of an interface, also link-local ones: none if it is missing.
func addresses(name string) (all []netip.Prefix) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil
	}
	found, err := i.Addrs()
	if err != nil {
		return nil
	}
	for _, a := range found {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// LocalPort returns the port of br-int to a local gateway, if gateway-init has made one.
func LocalPort(all []vswitch.Interface) (port vswitch.Interface, there bool) {
	for _, i := range all {
		if i.Name == names.PatchFromIntegration(names.LocalBridge) && i.Bridge == names.IntegrationBridge && i.ExternalIDs[names.GatewayTag] != "" {
			return i, true
		}
	}
	return port, false
}

// SharedBridge returns the bridge that gateway-init has connected with br-int, "" if
// there is none, and the NICs in it.
func SharedBridge(all []vswitch.Interface) (bridge string, nics []string) {
	for _, i := range all {
		to, ok := strings.CutPrefix(i.Name, names.PatchFromIntegration(""))
		if ok && i.Bridge == names.IntegrationBridge && i.ExternalIDs[names.GatewayTag] != "" && to != names.LocalBridge {
			bridge = to
		}
	}
	return bridge, vswitch.NICs(all, bridge)
}
