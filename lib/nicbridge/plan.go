package nicbridge

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"ovn-k8s/lib/link/record"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A Direction is where addresses move to.
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

// A Snapshot is all that a move needs to know, taken before it. Both ways are
// planned from it, the way there and the way back, so a move that was
// interrupted is undone by what its journal has.
type Snapshot struct {
	NIC, Bridge string
	// From is the one of the two that has the records.
	From     string
	Taken    time.Time
	Device   record.Device
	Settings record.Settings
	Records  []record.Record
	// MAC and MTU are the NIC's.
	MAC string
	MTU int
	// Datapath is the datapath_type of the bridge.
	Datapath    string
	ExternalIDs map[string]string
	// Joining are the offloads of the NIC that are off while it is a port.
	Joining []string
	// Kept is what the other one had before the move: it stays.
	Kept         []record.Record
	KeptIndex    int // of the other one, 0 if it was not there
	KeptSettings record.Settings
	KeptDevice   record.Device
	// Row is the bridge's in Open vSwitch's database before the move, if it was
	// there.
	Row vswitch.BridgeRow
	// HadBridge and HadPort tell whether the bridge was there before the move,
	// and had the NIC as a port. The way back leaves them as they were.
	HadBridge, HadPort bool
}

// target is where records go in a direction.
func (s Snapshot) target(d Direction) string {
	if d == ToBridge {
		return s.Bridge
	}
	return s.NIC
}

// source is where records come from in a direction.
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

// A Step is one change. Doing it twice is doing it once, and what it would undo
// need not be there.
type Step struct {
	Do      action
	On      string // the interface or bridge
	Records []record.Record
	Text    string // for people
}

// String says what changes.
func (st Step) String() string { return st.Text }

// Plan lists the steps that move the records of s in a direction. What is
// there already changes nothing: so the plan of the other direction undoes any
// part of one. The bridge that is left over at the end is another plan's: see
// Leftover.
func (s Snapshot) Plan(d Direction) []Step {
	if d == ToBridge {
		return slices.Concat(s.makeBridge(), s.prepare(d), s.attach(), s.leave(d), s.silence(), s.enter(d))
	}
	return slices.Concat(s.leave(d), s.detach(), s.prepare(d), s.enter(d), s.restore())
}

// Leftover lists the steps that take away what nothing needs after a move. They
// come when it is known that the move has worked.
func (s Snapshot) Leftover(d Direction) []Step {
	if d == ToBridge || s.HadBridge && s.From == s.NIC {
		return nil
	}
	return []Step{{Do: deleteBridge, On: s.Bridge, Text: "delete bridge " + s.Bridge}}
}

func (s Snapshot) makeBridge() []Step {
	if s.From == s.Bridge {
		return nil // it stays until its records are known to be well
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

// silence is for a NIC that becomes a port. On the way back from a move to the
// NIC it gets what it had.
func (s Snapshot) silence() []Step {
	if s.From == s.Bridge {
		return []Step{{Do: restore, On: s.NIC, Text: "give back the settings of " + s.NIC}}
	}
	return []Step{{Do: silence, On: s.NIC, Text: "keep the kernel from answering on " + s.NIC}}
}

// restore gives a bridge that stays what it had before.
func (s Snapshot) restore() []Step {
	if !s.HadBridge || s.From != s.NIC {
		return nil
	}
	text := "give back the settings of " + s.Bridge
	return []Step{{Do: reset, On: s.Bridge, Text: text + " in Open vSwitch"}, {Do: restore, On: s.Bridge, Text: text}}
}

// leave takes the records away, the last ones first: with the first address of a
// subnet the kernel may remove the others.
func (s Snapshot) leave(d Direction) []Step {
	from := s.source(d)
	var steps []Step
	for _, r := range slices.Backward(s.Records) {
		if r.Kind == record.Rule || !r.Mentions(s.From) || s.From != from && s.kept(r) {
			continue
		}
		steps = append(steps, Step{Do: remove, On: from, Records: []record.Record{r.Named(s.From, from)}, Text: fmt.Sprintf("remove %s %s from %s", r.Kind, r.Text, from)})
	}
	return steps
}

// kept reports whether the other interface had the same record before.
func (s Snapshot) kept(r record.Record) bool {
	key := r.Named(s.From, s.other()).Key()
	return slices.ContainsFunc(s.Kept, func(k record.Record) bool { return k.Key() == key })
}

// other is the one that did not have the records.
func (s Snapshot) other() string {
	if s.From == s.NIC {
		return s.Bridge
	}
	return s.NIC
}

// enter gives the records to the target: addresses, then what needs them.
func (s Snapshot) enter(d Direction) []Step {
	to := s.target(d)
	var steps []Step
	for _, records := range record.Groups(s.Records) {
		group := s.named(records, to)
		do := arrange
		if len(group) == 1 && group[0].Kind != record.Rule {
			do = add
		}
		steps = append(steps, Step{Do: do, On: to, Records: group, Text: fmt.Sprintf("add %s %s to %s", group[0].Kind, group[0].Text, to)})
	}
	return append(steps, Step{Do: settle, On: to, Text: "let " + to + " take part as " + s.From + " did"})
}

// named returns records as those of an interface. Where both had the same, such as the
// route of fe80::/64, it is there once.
func (s Snapshot) named(records []record.Record, to string) []record.Record {
	var all []record.Record
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

// open are the settings of the target.
func (s Snapshot) open(d Direction) record.Settings {
	if d == ToBridge && s.HadPort {
		return nil // the NIC's are those of a port, not of a host's interface
	}
	return s.Settings
}

// device is what the target is to be like. The MTU is left alone: that of a NIC
// stays, and a bridge's is Open vSwitch's matter.
func (s Snapshot) device(d Direction) record.Device {
	device := s.Device
	if d == ToBridge && s.HadPort && s.From == s.NIC {
		device = s.KeptDevice // a port may be promiscuous by Open vSwitch's doing
		device.Up = true
	}
	device.MTU = 0
	return device
}

// quiet are the settings of the target until the records are there: the kernel
// makes no addresses of its own meanwhile.
func quiet(s record.Settings) record.Settings {
	q := maps.Clone(s)
	for name, value := range map[string]string{record.AcceptRA: "0", record.GenerateMode: "1", record.TemporaryAddresses: "0"} {
		if _, ok := q[name]; ok {
			q[name] = value
		}
	}
	return q
}

// mute are the settings of a NIC that is a port. Open vSwitch in user space
// reads copies of its frames, so that the kernel sees them too, and what is for
// the host's addresses it would take or answer a second time.
var mute = record.Settings{record.ReversePath: "1", record.IgnoreARP: "8", record.DisableIPv6: "1", record.AcceptRA: "0"}
