package policy

import (
	"encoding/json"
	"fmt"
	"slices"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// LoggingUnit owns the meter that limits the log lines of ACLs. It has rows while a
// namespace with policies asks for logging.
const LoggingUnit nb.Unit = "acl-logging"

// linesPerSecond is the limit of log lines of one ACL on one node.
const linesPerSecond = 20

// severities are OVN's.
var severities = []string{
	nbdb.ACLSeverityAlert, nbdb.ACLSeverityWarning, nbdb.ACLSeverityNotice, nbdb.ACLSeverityInfo, nbdb.ACLSeverityDebug,
}

// logging holds the severities of a namespace's annotation names.ACLLogging.
type logging struct {
	deny, allow string // severities; "" is no logging
	problem     string // of the annotation
}

func (l logging) on() bool { return l.deny != "" || l.allow != "" }

// newLogging reads the value of the annotation.
func newLogging(s string) (l logging) {
	if s == "" {
		return l
	}
	const example = `{"deny": "alert", "allow": "notice"}`
	var raw struct{ Deny, Allow string }
	if err := json.Unmarshal([]byte(s), &raw); err != nil {
		l.problem = fmt.Sprintf("annotation %s: %q is not like %s", names.ACLLogging, shortened(s, 200), example)
		return l
	}
	for _, level := range []string{raw.Deny, raw.Allow} {
		if level != "" && !slices.Contains(severities, level) {
			l.problem = fmt.Sprintf("annotation %s: %q is no severity: use one of %q", names.ACLLogging, shortened(level, 200), severities)
			return l
		}
	}
	l.deny, l.allow = raw.Deny, raw.Allow
	return l
}

// logs reports whether any policy logs.
func (x *spaces) logs() bool {
	for _, n := range x.all {
		if n.logging.on() && len(n.policies) > 0 {
			return true
		}
	}
	return false
}

// loggingRows returns the rows of LoggingUnit.
func (x *Index) loggingRows() []nb.Row {
	if !x.spaces.logs() {
		return nil
	}
	fair := true // each ACL has its own limit
	return []nb.Row{
		{Table: nbdb.MeterBandTable, ID: names.ACLMeter, Model: &nbdb.MeterBand{Action: nbdb.MeterBandActionDrop, Rate: linesPerSecond}},
		{
			Table: nbdb.MeterTable, ID: names.ACLMeter,
			Model: &nbdb.Meter{Name: names.ACLMeter, Unit: nbdb.MeterUnitPktps, Fair: &fair},
			Has:   []nb.Ref{{Table: nbdb.MeterBandTable, ID: names.ACLMeter, Column: "bands"}},
		},
	}
}
