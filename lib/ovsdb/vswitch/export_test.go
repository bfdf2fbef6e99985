package vswitch

import (
	"context"
	"errors"
	"time"

	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// Impatient makes a Switch wait less for its database.
func Impatient(s *Switch) { s.readTimeout = 100 * time.Millisecond }

// HeardOfOthers reports whether a Switch has rows or values changed by each new port.
func HeardOfOthers(ctx context.Context, s *Switch) (bool, error) {
	c := s.db.Client()
	var ports []*vswitchdb.Port
	var bridges []*vswitchdb.Bridge
	top, err := root(ctx, c)
	if err = errors.Join(err, list(ctx, c, &ports), list(ctx, c, &bridges)); err != nil {
		return false, err
	}
	heard := len(ports) > 0 || top.CurCfg != 0
	for _, b := range bridges {
		heard = heard || len(b.Ports) > 0
	}
	return heard, nil
}

// Reason returns the lines about an interface in ovs-vswitchd's log.
func Reason(ctx context.Context, of ...string) error { return reason(ctx, of...) }
