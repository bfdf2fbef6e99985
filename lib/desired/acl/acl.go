// Package acl has the ACLs of OVN as rows, and the expressions that match packets.
package acl

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// A Spec holds the columns of an ACL.
type Spec struct {
	Name      string // its ID by default
	Direction nbdb.ACLDirection
	Match     string
	Priority  int
	Action    nbdb.ACLAction
	Severity  string // of log lines; "" for none
}

// MaxPriority is the highest priority of ACLs, and of router policies.
const MaxPriority = 32767

// Row returns the row of an ACL in columns of switches or port groups.
func Row(id string, s Spec, in []nb.Ref) nb.Row {
	name := cut(cmp.Or(s.Name, id))
	m := &nbdb.ACL{Name: &name, Action: s.Action, Match: s.Match, Priority: s.Priority, Direction: s.Direction}
	if s.Direction == nbdb.ACLDirectionFromLport {
		// After load balancing: the destination is the endpoint.
		m.Options = map[string]string{names.AfterLB: "true"}
	}
	if s.Severity != "" {
		meter := names.ACLMeter
		m.Log, m.Severity, m.Meter = true, &s.Severity, &meter
	}
	return nb.Row{Table: nbdb.ACLTable, ID: id, Model: m, In: in}
}

// maxName is the maximum length of an ACL's name.
const maxName = 63

// cut shortens a name to maxName. It keeps the last two parts, such as direction and
// rule (of a name with two parts, the last), and the beginning as far as it fits. A
// hash replaces the rest.
func cut(name string) string {
	if len(name) <= maxName {
		return name
	}
	at := strings.LastIndex(name, "/")
	if before := strings.LastIndex(name[:at], "/"); before >= 0 {
		at = before
	}
	sum := sha256.Sum256([]byte(name))
	end := "~" + hex.EncodeToString(sum[:3]) + name[at:]
	return name[:maxName-len(end)] + end
}

// FromManagement matches packets from the management port of a node's switch.
func FromManagement(sw string) string { return fmt.Sprintf("inport == %q", names.ManagementPort(sw)) }

// ToManagement matches packets to the management port of a node's switch.
func ToManagement(sw string) string { return fmt.Sprintf("outport == %q", names.ManagementPort(sw)) }

// OfSwitch returns the column with the ACLs of a switch.
func OfSwitch(name string) nb.Ref {
	return nb.Ref{Table: nbdb.LogicalSwitchTable, ID: name, Column: "acls"}
}
