package host

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"ovn-k8s/test/ovntest"
)

//go:embed ovs.sh
var ovsScript string

//go:embed uplink.sh
var uplinkScript string

const (
	ovsdbPidfile      = "/var/run/openvswitch/ovsdb-server.pid"
	vswitchdPidfile   = "/var/run/openvswitch/ovs-vswitchd.pid"
	controllerPidfile = "/var/run/ovn/ovn-controller.pid"
)

// StartOVS starts ovsdb-server and ovs-vswitchd, and moves eth0 with its addresses
// to the bridge breth0. The system-id is the host's name. After StopOVS it starts
// Open vSwitch again with the existing database.
func (h *Host) StartOVS(ctx context.Context) error {
	if err := h.StartSwitch(ctx); err != nil {
		return err
	}
	if _, err := h.Script(ctx, uplinkScript); err != nil {
		return fmt.Errorf("making breth0 on %s: %w", h.Name, err)
	}
	if err := h.HideFromKernel(ctx, "eth0"); err != nil {
		return err
	}
	// The userspace datapath finds the routes of its tunnels only on the bridge.
	err := batch(h.Command, "address flush dev eth0 scope global")
	if err == nil {
		err = address(h.Command, "breth0", h.Addresses, h.gateways)
	}
	if err != nil {
		return fmt.Errorf("moving the addresses of %s to breth0: %w", h.Name, err)
	}
	return nil
}

// StartSwitch starts ovsdb-server and ovs-vswitchd as StartOVS does, and leaves
// eth0 alone.
func (h *Host) StartSwitch(ctx context.Context) error {
	if _, err := h.Script(ctx, ovsScript, h.Name, os.Getenv(firewallVariable)); err != nil {
		return fmt.Errorf("starting Open vSwitch on %s: %w", h.Name, err)
	}
	return nil
}

// StopOVS kills ovs-vswitchd and ovsdb-server with SIGKILL. The host loses its
// bridges, with their addresses and routes, until StartOVS.
func (h *Host) StopOVS(ctx context.Context) error {
	return errors.Join(h.Kill(ctx, vswitchdPidfile), h.Kill(ctx, ovsdbPidfile))
}

// RestartOVS kills Open vSwitch and starts it again.
func (h *Host) RestartOVS(ctx context.Context) error {
	return errors.Join(h.StopOVS(ctx), h.StartVswitchd(ctx))
}

// RestartVswitchd kills ovs-vswitchd alone and starts it again. With the userspace datapath the host loses its bridges
// meanwhile, as with StopOVS.
func (h *Host) RestartVswitchd(ctx context.Context) error {
	if err := h.StopVswitchd(ctx); err != nil {
		return err
	}
	return h.StartVswitchd(ctx)
}

// StopVswitchd kills ovs-vswitchd with SIGKILL.
func (h *Host) StopVswitchd(ctx context.Context) error { return h.Kill(ctx, vswitchdPidfile) }

// StartVswitchd starts ovs-vswitchd after StopVswitchd, or Open vSwitch after StopOVS.
func (h *Host) StartVswitchd(ctx context.Context) error {
	if Datapath() == Kernel { // it keeps the bridges with their addresses; a new address ends masqueraded connections
		return h.StartSwitch(ctx)
	}
	return h.StartOVS(ctx)
}

// StartController configures and starts ovn-controller, and waits until its chassis
// is in the Southbound database at remote, such as "tcp:198.18.0.11:6642". Tunnels
// are Geneve between the hosts' IPv4 addresses. Its monitor process restarts it
// after an abort, as under ovn-ctl; see Aborts.
func (h *Host) StartController(ctx context.Context, remote string) error {
	err := h.VSCtl(ctx, "set", "Open_vSwitch", ".",
		"external_ids:ovn-remote="+fmt.Sprintf("%q", remote),
		"external_ids:ovn-encap-type=geneve",
		"external_ids:ovn-encap-ip="+h.IPv4().String())
	if err == nil {
		err = h.ResumeController(ctx)
	}
	if err == nil {
		_, _, err = h.Run(ctx, "ovn-sbctl", "--db="+remote, "--timeout=60", "wait-until", "Chassis", h.Name)
	}
	if err != nil {
		return fmt.Errorf("starting ovn-controller on %s: %w", h.Name, err)
	}
	return nil
}

// ResumeController starts ovn-controller after StopController, and does not wait for it.
func (h *Host) ResumeController(ctx context.Context) error {
	_, _, err := h.Run(ctx, "ovn-controller", "--detach", "--monitor", "--no-chdir", "--pidfile", "--log-file", "-vconsole:off")
	return err
}

// Aborts returns the log lines of level EMER of the host's Open vSwitch and OVN
// daemons: one for each abort.
func (h *Host) Aborts() ([]string, error) {
	logs, err := filepath.Glob(h.Path("/var/log/openvswitch/*.log"))
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "|EMER|") {
				lines = append(lines, h.Name+": "+filepath.Base(name)+": "+strings.TrimSpace(line))
			}
		}
	}
	return lines, nil
}

// StopController kills ovn-controller with SIGKILL. Flows and tunnels stay.
func (h *Host) StopController(ctx context.Context) error { return h.Kill(ctx, controllerPidfile) }

// VSCtl runs ovs-vsctl in the host.
func (h *Host) VSCtl(ctx context.Context, args ...string) error {
	_, _, err := h.Run(ctx, "ovs-vsctl", append([]string{"--timeout=60"}, args...)...)
	return err
}

// VSGet runs ovs-vsctl in the host and returns its output without the last newline.
func (h *Host) VSGet(ctx context.Context, args ...string) (string, error) {
	out, _, err := h.Run(ctx, "ovs-vsctl", append([]string{"--timeout=60"}, args...)...)
	return strings.TrimRight(out, "\n"), err
}

// StartCentral starts ovn-northd and the OVN databases in the host. They listen on
// the default TCP ports of all addresses and on the default unix sockets. Their
// files are in dir, see ovntest.Options. The caller must Close the Central before
// the host.
func (h *Host) StartCentral(dir string) (*ovntest.Central, error) {
	c, err := ovntest.Start(ovntest.Options{
		Dir:     dir,
		Listen:  "::",
		NBPort:  6641,
		SBPort:  6642,
		NBArgs:  []string{"--remote=punix:/var/run/ovn/ovnnb_db.sock"},
		SBArgs:  []string{"--remote=punix:/var/run/ovn/ovnsb_db.sock"},
		Command: h.Command,
	})
	if err != nil {
		return nil, err
	}
	c.NBTCP = fmt.Sprintf("tcp:%v:6641", h.IPv4())
	c.SBTCP = fmt.Sprintf("tcp:%v:6642", h.IPv4())
	return c, nil
}

// StartClusters is StartCentral with both databases as RAFT clusters of some hosts, of which the first runs ovn-northd.
func StartClusters(dir string, hosts ...*Host) (*ovntest.Central, error) {
	o := ovntest.Options{Dir: dir, NBPort: 6641, SBPort: 6642, Command: hosts[0].Command}
	for _, h := range hosts {
		o.Members = append(o.Members, ovntest.Member{Address: h.IPv4().String(), Command: h.Command})
	}
	return ovntest.Start(o)
}
