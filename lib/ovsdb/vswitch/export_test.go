package vswitch

import (
	"context"
	"errors"

	"github.com/ovn-kubernetes/libovsdb/client"

	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// HeardOfOthers reports whether a Switch has rows or values changed by each new port.
func HeardOfOthers(ctx context.Context, s *Switch) (heard bool, err error) {
	err = s.Read(ctx, func(c client.Client) error {
		var ports []*vswitchdb.Port
		var bridges []*vswitchdb.Bridge
		top, err := confdb.Root(ctx, c)
		if err = errors.Join(err, confdb.List(ctx, c, &ports), confdb.List(ctx, c, &bridges)); err != nil {
			return err
		}
		heard = len(ports) > 0 || top.CurCfg != 0
		for _, b := range bridges {
			heard = heard || len(b.Ports) > 0
		}
		return nil
	})
	return heard, err
}
