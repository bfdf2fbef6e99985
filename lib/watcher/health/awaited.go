package health

import (
	"maps"
	"time"

	"ovn-k8s/lib/desired/facts"
)

// patience is the time between two hosts registering in an emptied database: longer than an ovn-controller pauses between
// two tries to connect (8 s), and needs with many hosts at once.
const patience = time.Minute

// awaited follows the hosts in the Southbound database. If all their rows are gone, it was emptied or is another one, and the
// hosts register again, one after another. Until then nothing is known of the others: without this, all packets would
// go to the first gateway.
type awaited struct {
	rows  map[string]string // of hosts, by system-id
	hosts map[string]bool   // registered in the former database only
}

// see takes the rows of the hosts registered now, by system-id. It reports whether hosts are awaited for longer.
func (a *awaited) see(rows map[string]string) (longer bool) {
	lost := len(a.rows) > 0
	for id, row := range rows {
		lost = lost && a.rows[id] != row
		longer = longer || a.hosts[id]
	}
	if lost {
		for id := range a.rows {
			a.hosts[id] = true
		}
	}
	maps.DeleteFunc(a.hosts, func(id string, _ bool) bool { return rows[id] != "" })
	a.rows = rows
	return lost || longer
}

// registered are the hosts with rows, and those awaited.
func (a *awaited) registered() facts.Registered {
	r := facts.Registered{}
	for id := range a.rows {
		r[id] = true
	}
	for id := range a.hosts {
		r[id] = false
	}
	return r
}
