package config

import "net/netip"

// GivenJoin returns JoinSubnets if a source has them, and nil if they are the default.
func (c Config) GivenJoin() []netip.Prefix {
	if o := c.found[joinSubnet]; o == nil || o.source == "default" {
		return nil
	}
	return c.JoinSubnets
}
