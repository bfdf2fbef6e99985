package gateway

import "context"

// setDatapath records the UUID of the Datapath_Binding of a gateway's router.
func (e *engine) setDatapath(router, uuid string) {
	e.send(func() []string {
		if e.routers[router] == uuid {
			return nil
		}
		e.routers[router] = uuid
		return []string{partZones}
	})
}

// expireSYNs sets timeouts in the zones of routers, named or by their UUIDs.
func (e *engine) expireSYNs(ctx context.Context, routers []string) error {
	writing, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	changed, err := e.sw.Controller().ExpireSYNs(writing, routers)
	if changed {
		e.log.Info("conntrack of the userspace datapath: updated the timeouts of unanswered SYNs in zones of gateways")
	}
	return err
}
