package ofctl

import "context"

// Known are the ports of a bridge, kept until something changes: ovs-ofctl(8) is a process each time. The zero value knows
// none. One goroutine calls the methods.
type Known struct {
	ports Ports
	state any
}

// Ports lists the bridge's ports. It asks ovs-vswitchd if the port numbers depend on another state than at the last call,
// after Forget, and while ovs-vswitchd is down, which is an error.
func (k *Known) Ports(ctx context.Context, b Bridge, state any) (Ports, error) {
	if k.ports != nil && k.state == state && !b.Down() {
		return k.ports, nil
	}
	var err error
	k.state = state
	k.ports, err = b.Ports(ctx)
	return k.ports, err
}

// Forget makes the next call of Ports ask.
func (k *Known) Forget() { k.ports = nil }
