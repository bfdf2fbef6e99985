// Package hostids decides which keys of external_ids a program sets on a host, in the table Open_vSwitch. It records the
// former values in the same column, so the program can take its values back, and does not read them as an operator's.
package hostids

import (
	"encoding/json"
	"maps"

	"ovn-k8s/lib/names"
)

// A note is what the program changed at a key.
type note struct {
	Former string `json:"former,omitempty"` // "" if there was none
	Set    string `json:"set"`
}

// notes reads the record. An invalid one counts as none: then all values are an operator's.
func notes(ids map[string]string) map[string]note {
	var all map[string]note
	if err := json.Unmarshal([]byte(ids[names.FormerIDs]), &all); err != nil || all == nil {
		return map[string]note{}
	}
	return all
}

// Plan returns the keys to remove, with their present values, and those to insert, so that ids has the wanted values. A
// key set before and no longer wanted gets its former value. A key to be replaced is in both.
func Plan(ids, want map[string]string) (remove, insert map[string]string) {
	record, next := notes(ids), map[string]note{}
	now := maps.Clone(ids)
	if now == nil {
		now = map[string]string{}
	}
	for key, n := range record {
		if _, wanted := want[key]; !wanted && ids[key] == n.Set {
			set(now, key, n.Former)
		}
	}
	for key, value := range want {
		n, ours := record[key]
		switch {
		case ours && ids[key] == n.Set: // as this program left it
			next[key] = note{n.Former, value}
		case ids[key] != value:
			next[key] = note{ids[key], value}
		}
		set(now, key, value)
	}
	set(now, names.FormerIDs, format(next))
	remove, insert = map[string]string{}, map[string]string{}
	for key, value := range ids {
		if now[key] != value {
			remove[key] = value
		}
	}
	for key, value := range now {
		if was, ok := ids[key]; !ok || was != value {
			insert[key] = value
		}
	}
	return remove, insert
}

// set sets a key, or deletes it if value is "".
func set(ids map[string]string, key, value string) {
	if value == "" {
		delete(ids, key)
		return
	}
	ids[key] = value
}

// format returns a record as JSON, "" if it is empty.
func format(record map[string]note) string {
	for key, n := range record {
		if n.Former == n.Set {
			delete(record, key)
		}
	}
	if len(record) == 0 {
		return ""
	}
	b, err := json.Marshal(record)
	if err != nil {
		panic("hostids: strings are not JSON: " + err.Error())
	}
	return string(b)
}

// Given returns ids without the program's own values: with the former ones in their places. A value changed since is an
// operator's.
func Given(ids map[string]string) map[string]string {
	out := maps.Clone(ids)
	for key, n := range notes(ids) {
		if ids[key] == n.Set {
			set(out, key, n.Former)
		}
	}
	delete(out, names.FormerIDs)
	return out
}

// Own returns the program's own values in ids, those that Given leaves out.
func Own(ids map[string]string) map[string]string {
	own := map[string]string{}
	for key, n := range notes(ids) {
		if ids[key] == n.Set {
			own[key] = n.Set
		}
	}
	return own
}
