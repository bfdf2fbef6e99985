package topology

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/names"
)

// Two gateways share an address if one of them is local; else the second is refused, and left out of a record.
func TestGatewaysWithOneAddress(t *testing.T) {
	for _, modes := range [][2]string{{Physical, Physical}, {Physical, Bridge}, {Physical, Local}, {Local, Bridge}, {Local, Local}} {
		for _, order := range [][2]string{{"a", "b"}, {"b", "a"}} { // of their names
			one, two := gateway(2), gateway(3)
			one.Mode, two.Mode, two.IPs = modes[0], modes[1], one.IPs
			c := with(t, dual(t), order[0], one)
			after, err := c.WithGateway(order[1], two)
			if share := slices.Contains(modes[:], Local); share != (err == nil) {
				t.Errorf("%v: %v", modes, err)
			}
			two.Join = addrs("100.64.0.3,fd98::3")
			r := c.Registry()
			r[names.GatewayPrefix+order[1]] = two.text()
			read, err := ReadRegistry(r)
			if err == nil && !read.Equal(after) || err != nil && !read.Equal(c) {
				t.Errorf("%v: read %v, %v", modes, read.Gateways, err)
			}
		}
	}
}

// A record with a gateway that does not fit in is told from one that cannot be read. The one with the higher join address
// is left out, whatever its name.
func TestUnfit(t *testing.T) {
	c := with(t, with(t, dual(t), "b", gateway(2)), "c", gateway(3))
	late := gateway(4)
	late.IPs, late.Join = c.Gateways["b"].IPs, addrs("100.64.0.4,fd98::4")
	r := c.Registry()
	r[names.GatewayPrefix+"a"] = late.text()
	got, err := ReadRegistry(r)
	if !errors.As(err, new(Unfit)) || !strings.Contains(err.Error(), "reading ovn-k8s-gateway-a of the topology: physical IP 10.0.0.2 is gateway b's already") || !got.Equal(c) {
		t.Errorf("%v, %v", got.Gateways.Names(), err)
	}
	for _, bad := range []string{names.NodePrefix + "n", names.GatewayPrefix + "d"} {
		r[bad] = "junk"
		if _, err := ReadRegistry(r); err == nil || errors.As(err, new(Unfit)) {
			t.Errorf("with a bad %s: %v", bad, err)
		}
		delete(r, bad)
	}
}
