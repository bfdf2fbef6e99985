// Package ovncontroller changes settings of this host's ovn-controller in the database of the local Open vSwitch: see
// ovn-controller(8).
package ovncontroller

import (
	"ovn-k8s/lib/ovsdb/vswitch/confdb"
)

// Settings are the settings in a database.
type Settings struct{ DB *confdb.DB }
