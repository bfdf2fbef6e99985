package confdb

import "context"

// Reason returns the lines about an interface in ovs-vswitchd's log.
func Reason(ctx context.Context, of ...string) error { return reason(ctx, of...) }
