package ovsdb

import "time"

// ProbeFast makes a DB notice a frozen server within seconds.
func ProbeFast(db *DB) {
	db.timeouts.probeInterval, db.timeouts.probe = 100*time.Millisecond, 2*time.Second
}

// Impatient limits connecting to the first duration, and a server's silence while the tables are read to the second.
func Impatient(o *Options, dial, read time.Duration) {
	o.timeouts = timeouts{dial: dial, read: read, probeInterval: dial / 10, probe: probeTimeout}
}
