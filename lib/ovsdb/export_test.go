package ovsdb

import "time"

// ProbeFast makes a DB notice within seconds that its server is frozen.
func ProbeFast(db *DB) { db.probeInterval, db.probeTimeout = 100*time.Millisecond, 2*time.Second }
