package nicbridge

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A Direction is the direction of a move.
type Direction string

// The directions.
const (
	ToBridge Direction = "nics-to-bridge"
	ToNIC    Direction = "bridges-to-nic"
)

// back is the other direction.
func (d Direction) back() Direction {
	if d == ToBridge {
		return ToNIC
	}
	return ToBridge
}

// A Snapshot is the state before a move. The plans of both directions are computed from it, so an interrupted move is
// undone with the snapshot in its journal.
type Snapshot struct {
	NIC, Bridge string
	// From is NIC or Bridge: the one with the records.
	From     string
	Taken    time.Time
	Device   ifstate.Device
	Settings ifstate.Settings
	Records  []ifstate.Record
	// MAC and MTU are the NIC's.
	MAC string
	MTU int
	// Datapath is the datapath_type of the bridge.
	Datapath    string
	ExternalIDs map[string]string
	// Joining are the offloads of the NIC that are off while it is a port.
	Joining []string
	// Kept is the state of the other interface before the move: it is kept.
	Kept         []ifstate.Record
	KeptIndex    int // of the other interface, 0 if it did not exist
	KeptSettings ifstate.Settings
	KeptDevice   ifstate.Device
	// Row is the bridge's row in Open vSwitch's database before the move, if it existed.
	Row vswitch.BridgeRow
	// Port is the NIC's port before the move, if it was one.
	Port vswitch.PortRow
	// HadBridge and HadPort: before the move, the bridge existed, and had the NIC as a port. Undoing leaves them as
	// they were.
	HadBridge, HadPort bool
}

// target is the interface that gets the records in a direction.
func (s Snapshot) target(d Direction) string {
	if d == ToBridge {
		return s.Bridge
	}
	return s.NIC
}

// source is the interface that loses the records in a direction.
func (s Snapshot) source(d Direction) string { return s.target(d.back()) }

// An action is a kind of Step.
type action string

const (
	makeBridge   action = "make"
	deleteBridge action = "delete"
	attach       action = "attach"
	detach       action = "detach"
	prepare      action = "prepare"
	settle       action = "settle"
	silence      action = "silence"
	restore      action = "restore"
	reset        action = "reset" // as restore, in Open vSwitch's database
	offload      action = "offload"
	remove       action = "remove"
	add          action = "add"
	arrange      action = "arrange"
)

// A Step is one idempotent change. Its precondition need not hold: there may be nothing to change.
type Step struct {
	Do      action
	On      string // the interface or bridge
	Records []ifstate.Record
	Text    string // for people
}

// String describes the change.
func (st Step) String() string { return st.Text }

// Plan lists the steps of moving the records of s in a direction. Steps already done change nothing, so the plan of
// the other direction undoes any part of a plan. An obsolete bridge is left for another plan: see Leftover.
func (s Snapshot) Plan(d Direction) []Step {
	if d == ToBridge {
		return slices.Concat(s.makeBridge(), s.prepare(d), s.attach(), s.leave(d), s.silence(), s.enter(d))
	}
	return slices.Concat(s.leave(d), s.detach(), s.prepare(d), s.enter(d), s.restore())
}

// Leftover lists the cleanup after a verified move.
func (s Snapshot) Leftover(d Direction) []Step {
	if d == ToBridge || s.HadBridge && s.From == s.NIC {
		return nil
	}
	return []Step{{Do: deleteBridge, On: s.Bridge, Text: "delete bridge " + s.Bridge}}
}

func (s Snapshot) makeBridge() []Step {
	if s.From == s.Bridge {
		return nil // kept until its records are verified
	}
	return []Step{{Do: makeBridge, On: s.Bridge, Text: fmt.Sprintf("make bridge %s with the MAC %s and the MTU %d of %s", s.Bridge, s.MAC, s.MTU, s.NIC)}}
}

func (s Snapshot) attach() []Step {
	steps := []Step{{Do: attach, On: s.NIC, Text: fmt.Sprintf("make %s a port of %s", s.NIC, s.Bridge)}}
	if len(s.Joining) > 0 {
		off := Step{Do: offload, On: s.NIC, Text: fmt.Sprintf("switch off %v of %s", s.Joining, s.NIC)}
		return append([]Step{off}, steps...)
	}
	return steps
}

func (s Snapshot) detach() []Step {
	if s.HadPort && s.From == s.NIC {
		return nil
	}
	steps := []Step{{Do: detach, On: s.NIC, Text: fmt.Sprintf("take %s out of %s", s.NIC, s.Bridge)}}
	if len(s.Joining) > 0 {
		steps = append(steps, Step{Do: offload, On: s.NIC, Text: fmt.Sprintf("switch on %v of %s", s.Joining, s.NIC)})
	}
	return steps
}

func (s Snapshot) prepare(d Direction) []Step {
	to := s.target(d)
	return []Step{{Do: prepare, On: to, Text: fmt.Sprintf("give %s the settings of %s", to, s.source(d))}}
}

// silence isolates a NIC that becomes a port. Undoing a move to the NIC restores its former settings.
func (s Snapshot) silence() []Step {
	if s.From == s.Bridge {
		return []Step{{Do: restore, On: s.NIC, Text: "give back the settings of " + s.NIC}}
	}
	return []Step{{Do: silence, On: s.NIC, Text: "keep the kernel from answering on " + s.NIC}}
}

// restore reverts the settings of a bridge that existed before.
func (s Snapshot) restore() []Step {
	if !s.HadBridge || s.From != s.NIC {
		return nil
	}
	text := "give back the settings of " + s.Bridge
	return []Step{{Do: reset, On: s.Bridge, Text: text + " in Open vSwitch"}, {Do: restore, On: s.Bridge, Text: text}}
}

// leave removes the records in reverse order: with the first address of a subnet, the kernel may remove the others.
func (s Snapshot) leave(d Direction) []Step {
	from := s.source(d)
	var steps []Step
	for _, r := range slices.Backward(s.Records) {
		if r.Kind == ifstate.Rule || !r.Mentions(s.From) || s.From != from && s.kept(r) {
			continue
		}
		steps = append(steps, Step{Do: remove, On: from, Records: []ifstate.Record{r.Named(s.From, from)}, Text: fmt.Sprintf("remove %s %s from %s", r.Kind, r.Text, from)})
	}
	return steps
}

// kept reports whether the other interface had the same record before.
func (s Snapshot) kept(r ifstate.Record) bool {
	key := r.Named(s.From, s.other()).Key()
	return slices.ContainsFunc(s.Kept, func(k ifstate.Record) bool { return k.Key() == key })
}

// other is the interface without the records.
func (s Snapshot) other() string {
	if s.From == s.NIC {
		return s.Bridge
	}
	return s.NIC
}

// enter adds the records to the target: addresses first, since the others need them.
func (s Snapshot) enter(d Direction) []Step {
	to := s.target(d)
	var steps []Step
	for _, records := range ifstate.Groups(s.Records) {
		group := s.named(records, to)
		do := arrange
		if len(group) == 1 && group[0].Kind != ifstate.Rule {
			do = add
		}
		steps = append(steps, Step{Do: do, On: to, Records: group, Text: fmt.Sprintf("add %s %s to %s", group[0].Kind, group[0].Text, to)})
	}
	return append(steps, Step{Do: settle, On: to, Text: "let " + to + " take part as " + s.From + " did"})
}

// named returns records with to as their interface. A record of both, such as the route of fe80::/64, appears once.
func (s Snapshot) named(records []ifstate.Record, to string) []ifstate.Record {
	var all []ifstate.Record
	seen := map[string]bool{}
	for _, r := range records {
		c := r.Named(s.From, to)
		if to == s.other() && s.KeptIndex != 0 {
			c = c.Adopted(s.KeptIndex)
		}
		if key := c.Key(); !seen[key] {
			seen[key] = true
			all = append(all, c)
		}
	}
	return all
}

// open returns the settings of the target.
func (s Snapshot) open(d Direction) ifstate.Settings {
	if d == ToBridge && s.HadPort {
		return nil // the NIC has the settings of a port, not of a host's interface
	}
	return s.Settings
}

// device is the desired state of the target. The MTU is unchanged: a NIC keeps its own, and Open vSwitch sets a
// bridge's.
func (s Snapshot) device(d Direction) ifstate.Device {
	device := s.Device
	if d == ToBridge && s.HadPort && s.From == s.NIC {
		device = s.KeptDevice // Open vSwitch may set promiscuous mode on a port
		device.Up = true
	}
	device.MTU = 0
	return device
}

// quiet returns the target's settings until the records are added: the kernel must not add its own addresses.
func quiet(s ifstate.Settings) ifstate.Settings {
	q := maps.Clone(s)
	for name, value := range map[string]string{ifstate.AcceptRA: "0", ifstate.GenerateMode: "1", ifstate.TemporaryAddresses: "0"} {
		if _, ok := q[name]; ok {
			q[name] = value
		}
	}
	return q
}

// mute are the settings of a NIC as a port. Userspace Open vSwitch reads copies of its frames, so without them the
// kernel would also accept and answer packets to the host's addresses.
var mute = ifstate.Settings{ifstate.ReversePath: "1", ifstate.IgnoreARP: "8", ifstate.DisableIPv6: "1", ifstate.AcceptRA: "0"}
