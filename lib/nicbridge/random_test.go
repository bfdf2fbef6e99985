package nicbridge

import "fmt"

// randomize writes a configuration of eth0, with a little of eth1.
func (c *configuration) randomize() {
	c.add("link set eth0 mtu %d", []int{1500, 1500, 1400, 9000, 1280}[c.r.IntN(5)])
	if c.chance(20) {
		c.add("link set eth0 promisc on")
	}
	if c.chance(20) {
		c.add("link set eth0 allmulticast on")
	}
	if c.chance(20) {
		c.add("link set eth0 addrgenmode none")
	}
	c.ipv4()
	if c.chance(80) {
		c.ipv6()
	}
	c.rules()
	c.neighbours()
}

func (c *configuration) ipv4() {
	c.add("address add 10.0.0.5/24 brd + dev eth0%s", c.attributes(4))
	for n := range c.r.IntN(4) {
		switch c.r.IntN(5) {
		case 0: // a secondary
			c.add("address add 10.0.0.%d/24 dev eth0%s", 10+n, c.attributes(4))
		case 1: // an alias
			c.add("address add 10.0.%d.5/24 brd + dev eth0 label eth0:%s", 1+n, c.oneOf("1", "backup", "123456789"))
		case 2:
			c.add("address add 10.1.0.%d peer 10.2.0.%d dev eth0", 5+n, 5+n)
		case 3:
			c.add("address add 10.3.%d.5/32 dev eth0 scope %s", n, c.oneOf("host", "link", "global"))
		default:
			c.add("address add 10.4.%d.5/24 dev eth0%s", n, c.attributes(4))
		}
	}
	if c.chance(40) { // another NIC in the same subnet, before or after
		line := len(c.lines)
		c.add("address add 10.0.0.77/24 dev eth1")
		if c.chance(50) {
			copy(c.lines[1:], c.lines[:line])
			c.lines[0] = "address add 10.0.0.77/24 dev eth1"
		}
	}
	if c.chance(80) {
		c.add("route add default via 10.0.0.1 dev eth0%s", c.oneOf("", " metric 100", " proto dhcp src 10.0.0.5 metric 1024", " mtu 1400", " onlink"))
	}
	if c.chance(30) {
		c.add("route append default via 10.0.0.2 dev eth0")
	}
	for n := range c.r.IntN(5) {
		c.add("route add 172.%d.0.0/16 %s", 16+n, c.route4())
	}
	if c.chance(20) {
		c.add("route del 10.0.0.0/24 dev eth0 src 10.0.0.5")
	}
}

func (c *configuration) route4() string {
	return c.oneOf(
		"via 10.0.0.1 dev eth0 onlink",
		"via 10.0.0.1 dev eth0 onlink proto static src 10.0.0.5",
		"dev eth0 scope link",
		"via 10.0.0.9 dev eth0 onlink table 100",
		"dev eth0 table 4000000000 metric 7",
		"nexthop via 10.0.0.1 dev eth0 weight 2 onlink nexthop via 10.0.0.2 dev eth0 onlink",
		"nexthop via 10.0.0.1 dev eth0 onlink nexthop via 10.9.0.1 dev eth1 onlink",
		"via 10.0.0.1 dev eth0 onlink mtu lock 1300 advmss 1200 initcwnd 20",
		"via 10.0.0.1 dev eth0 onlink tos 0x10",
		"via 203.0.113.1 dev eth0 onlink realm 5",
		"dev eth1 src 10.0.0.5",
		"via inet6 fe80::1 dev eth0",
		"via 10.0.0.1 dev eth0 onlink proto bird metric 32",
	)
}

func (c *configuration) ipv6() {
	for n := range 1 + c.r.IntN(3) {
		c.add("address add fd00::%d/64 dev eth0%s", 5+n, c.attributes(6))
	}
	if c.chance(30) {
		c.add("address add fd01::5 peer fd02::5 dev eth0")
	}
	if c.chance(30) {
		c.add("address add fe80::5/64 dev eth0")
	}
	if c.chance(30) {
		c.add("address add fd00::77/64 dev eth1 nodad")
	}
	if c.chance(80) {
		c.add("-6 route add default via fe80::1 dev eth0%s", c.oneOf("", " metric 100", " proto ra expires 18000", " mtu 1400", " pref high"))
	}
	for n := range c.r.IntN(4) {
		c.add("-6 route add fd1%d::/64 %s", n, c.oneOf(
			"via fe80::1 dev eth0", "via fe80::1 dev eth0 proto static metric 50", "dev eth0 table 100",
			"nexthop via fe80::1 dev eth0 nexthop via fe80::2 dev eth0", "nexthop via fe80::1 dev eth0 nexthop via fe80::2 dev eth1",
			"via fe80::1 dev eth0 expires 6000", "via fe80::1 dev eth0 mtu 1300", "via fd00::99 dev eth0 onlink"))
	}
}

// attributes of an address.
func (c *configuration) attributes(family int) string {
	out := ""
	if c.chance(30) {
		out += fmt.Sprintf(" valid_lft %d preferred_lft %d", 30000+c.r.IntN(1000), c.r.IntN(2)*20000)
	}
	if c.chance(20) {
		out += fmt.Sprintf(" metric %d", 100+c.r.IntN(100))
	}
	if c.chance(20) {
		out += " noprefixroute"
	}
	if family == 6 {
		out += " " + c.oneOf("nodad", "nodad", "nodad home", "nodad mngtmpaddr", "nodad")
	}
	return out
}

func (c *configuration) rules() {
	for n := range c.r.IntN(4) {
		c.add("%s rule add %s %s lookup %d pref %d", c.oneOf("-4", "-6"), c.oneOf("", "not"), c.oneOf(
			"iif eth0", "oif eth0", "iif eth0 fwmark 0x10/0xff", "iif lo oif eth0", "iif eth0 ipproto tcp dport 80-90", "oif eth0 uidrange 0-99", "iif eth1", "fwmark 7"),
			100+n, 1000+100*c.r.IntN(2))
	}
}

func (c *configuration) neighbours() {
	if c.chance(40) {
		c.add("neigh add 10.0.0.%d lladdr 0a:00:00:00:00:99 dev eth0", 100+c.r.IntN(5))
	}
	if c.chance(20) {
		c.add("neigh add proxy 10.0.0.200 dev eth0")
	}
	if c.chance(20) {
		c.add("-6 neigh add fd00::99 lladdr 0a:00:00:00:00:99 dev eth0")
	}
}
