// Package vswitch works on the local Open vSwitch through its database: bridges, ports and their limits, each change as
// one transaction.
package vswitch

import (
	"context"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitch/ovncontroller"
)

// A Switch is the local Open vSwitch. Its methods may be called from several goroutines at once.
type Switch struct {
	*confdb.DB
	// widen connects once more, to follow all rows; nil if they are followed already: see ConnectFor.
	widen func(context.Context) (*Switch, error)
}

// Connect connects to the database in a run directory, and follows it: see confdb.Connect.
func Connect(ctx context.Context, rundir string, log *logrus.Entry) (*Switch, error) {
	db, err := confdb.Connect(ctx, rundir, confdb.Tables(), log)
	if err != nil {
		return nil, err
	}
	return &Switch{DB: db}, nil
}

// Controller returns the settings of this host's ovn-controller.
func (s *Switch) Controller() ovncontroller.Settings { return ovncontroller.Settings{DB: s.DB} }
