package overlay

import (
	"context"
	"fmt"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/ovsdb/southbound"
)

// registered reports whether the recorded chassis of what is another host in the Southbound database. If this is unknown,
// it is not. The chassis with an address of this host is this host's own, before it was installed again.
func (s *session) registered(ctx context.Context, what, chassis string) (is bool, err error) {
	c := s.host.Config
	if chassis == "" || chassis == c.SystemID || c.OVNRemote == "" {
		return false, nil
	}
	s.store.Forget() // the answer may take long
	err = s.Stage(ctx, "asking the Southbound database who is "+what, func(ctx context.Context) error {
		sb, err := southbound.Open(ctx, c, nil)
		if err != nil {
			s.Warn("%s was the host with system-id %s: if that is still there, two have its addresses now (%v)", what, chassis, err)
			return nil
		}
		defer sb.Close()
		alive, tunnels, _ := sb.Hosts()
		is = alive[chassis]
		for _, a := range tunnels[chassis] {
			nic, _, err := link.NICWith(a)
			if err != nil {
				return err
			}
			is = is && nic == ""
		}
		return nil
	})
	return is, err
}

// errRegistered refuses what for the sake of the other host.
func errRegistered(what, chassis, or string) error {
	return fmt.Errorf("%s is the host with system-id %s, which is registered in the Southbound database: give another --node-name, or if that host is no more run \"ovn-sbctl chassis-del %[2]s\" first%s",
		what, chassis, or)
}

// refuseTakeover is an error if another host is the gateway: it would lose it, with all connections.
func (s *session) refuseTakeover(ctx context.Context, name string, force bool) error {
	before, err := s.store.Topology(ctx)
	if err != nil {
		return err
	}
	what, chassis := "gateway "+name, before.Gateways[name].Chassis
	is, err := s.registered(ctx, what, chassis)
	if err != nil || !is {
		return err
	}
	err = errRegistered(what, chassis, ", or give --force: then that host loses the gateway with all connections")
	if !force {
		return err
	}
	s.Warn("%v", err)
	return nil
}

// stays reports whether a removal leaves the cluster as it is and takes back only what is on this host, as on a clone: the
// recorded chassis of what is another one, also if it is down.
func (s *session) stays(what, chassis string) bool {
	own := s.host.Config.SystemID
	if own == "" || chassis == "" || chassis == own {
		return false
	}
	s.Warn("%s is the host with system-id %s: it stays in the cluster, and only its part on this host is removed; if that host is no more, run the command once more", what, chassis)
	return true
}
