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
	if lines := managers.HandOver(snap.source(d), snap.target(d)); len(lines) > 0 {
		fmt.Fprintf(s.Out, "# A DHCP client works on %s, and would give it the address again. Run:\n%s\n", snap.source(d), strings.Join(lines, "\n"))
	}
	nic, err := ifstate.Find(snap.NIC)
	switch {
	case err != nil:
	case d == ToNIC:
		fmt.Fprint(s.Out, managers.ToNIC(nic))
	default:
		fmt.Fprint(s.Out, managers.ToBridge(nic, managers.Bridge{
			Name: snap.Bridge, NIC: snap.NIC, Kind: snap.Device.Kind, MAC: snap.MAC, MTU: snap.MTU, Datapath: snap.Datapath,
			Records: snap.Records, Settings: snap.Settings, PortSettings: mute,
		}))
	}
}
