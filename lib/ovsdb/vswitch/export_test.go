package vswitch

import "time"

// Impatient makes a Switch wait less for its database.
func Impatient(s *Switch) { s.readTimeout = 100 * time.Millisecond }
