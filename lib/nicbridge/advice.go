package nicbridge

import (
	"fmt"
	"strings"

	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/nicbridge/managers"
)

// advise prints the necessary changes of the host's own network configuration. The move itself does not depend on
// them.
func (s *session) advise(snap Snapshot, d Direction) {
	text := snap.advice(d)
	if s.Advise != nil && text != "" {
		s.Advise(text)
		return
	}
	fmt.Fprint(s.Out, text)
}

// advice is a paragraph for each thing to do.
func (s *Snapshot) advice(d Direction) string {
	var out strings.Builder
	var lines []string
	for _, c := range managers.Clients(s.source(d), s.target(d)) {
		lines = append(lines, c.Commands...)
	}
	if len(lines) > 0 {
		fmt.Fprintf(&out, "# A DHCP client works on %s, and would give it the address again. Run:\n%s\n", s.source(d), strings.Join(lines, "\n"))
	}
	for _, r := range s.Records {
		if lease, ok := r.Lease(); ok {
			fmt.Fprintf(&out, "# Address %s is of a DHCP lease: it ends in %d s unless a DHCP client on %s renews it.\n", r.Prefix(), int(lease.Left.Seconds()), s.target(d))
		}
	}
	nic, err := ifstate.Find(s.NIC)
	switch {
	case err != nil:
	case d == ToNIC:
		out.WriteString(managers.ToNIC(nic, s.Bridge))
	default:
		out.WriteString(managers.ToBridge(nic, managers.Bridge{
			Name: s.Bridge, NIC: s.NIC, Kind: s.Device.Kind, MAC: s.MAC, MTU: s.MTU, Datapath: s.Datapath,
			Records: s.Records, Settings: s.Settings, PortSettings: mute,
		}))
	}
	return out.String()
}
