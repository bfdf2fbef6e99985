package dbserver

import "testing"

// Listeners at one port conflict if they have an address in common. One with SSL at all addresses takes the other one's place.
func TestListenersConflict(t *testing.T) {
	for _, c := range []struct {
		other, target     string
		serves, conflicts bool
	}{
		{"ptcp:6641", "pssl:6641", false, true},
		{"ptcp:6641:0.0.0.0", "pssl:6641", false, true},
		{"ptcp:6641:127.0.0.1", "pssl:6641", false, true},
		{"ptcp:6641:db.example", "pssl:6641", false, true},
		{"ptcp:6641:[::]", "pssl:6641", false, true},
		{"ptcp:6641:[fd00::1]", "pssl:6641", false, false},
		{"ptcp:6641:[fd00::1]", "pssl:6641:[::]", false, true},
		{"ptcp:6641", "pssl:6641:[::]", false, true},
		{"ptcp:6642", "pssl:6641", false, false},
		{"ptcp:0", "pssl:0", false, false},
		{"punix:/run/6641", "pssl:6641", false, false},
		{"ssl:192.0.2.1:6641", "pssl:6641", false, false},
		{"pssl:6641:0.0.0.0", "pssl:6641", true, true},
		{"pssl:6641:[::]", "pssl:6641", true, true},
		{"pssl:6641", "pssl:6641:[::]", false, true},
		{"pssl:6641:192.0.2.1", "pssl:6641", false, true},
	} {
		if serves, conflicts := compare(c.other, c.target); serves != c.serves || conflicts != c.conflicts {
			t.Errorf("%s beside %s: serves %v, conflicts %v", c.other, c.target, serves, conflicts)
		}
	}
}
