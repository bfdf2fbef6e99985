package ovntest

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"ovn-k8s/test/reaper"
)

// A Member is a server of both databases' RAFT clusters.
type Member struct {
	Address string         // for clients and for the other members
	Command reaper.Command // runs the servers, as Options.Command does
}

// raftPorts are the members' ports for each other; clients have OVN's standard ports.
var raftPorts = map[string]int{"nb": 6643, "sb": 6644}

// A Cluster is the RAFT cluster of one database.
type Cluster struct {
	Unix, TCP string // the remotes of all members

	central *Central
	db      string // nb or sb
	members []Member
	servers []*reaper.Process
}

// Members returns how many servers the cluster has.
func (c *Cluster) Members() int { return len(c.members) }

// startCluster makes an empty database on the first member, and has the others join.
func (c *Central) startCluster(db string, ports map[string]int) (*Cluster, error) {
	k := &Cluster{central: c, db: db, members: c.opts.Members, servers: make([]*reaper.Process, len(c.opts.Members))}
	var unix, tcp []string
	for i, m := range k.members {
		unix, tcp = append(unix, "unix:"+k.file(i, "sock")), append(tcp, fmt.Sprintf("tcp:%s:%d", m.Address, ports[db]))
	}
	k.Unix, k.TCP = strings.Join(unix, ","), strings.Join(tcp, ",")
	for i := range k.members {
		if err := errors.Join(k.create(i), k.Start(i)); err != nil {
			k.close()
			return nil, err
		}
	}
	return k, nil
}

func (c *Cluster) file(i int, ext string) string {
	return filepath.Join(c.central.Dir, fmt.Sprintf("%s%d.%s", c.db, i, ext))
}

// peer is the address of a member for the others.
func (c *Cluster) peer(i int) string {
	return fmt.Sprintf("tcp:%s:%d", c.members[i].Address, raftPorts[c.db])
}

func (c *Cluster) name() string {
	return map[string]string{"nb": "OVN_Northbound", "sb": "OVN_Southbound"}[c.db]
}

func (c *Cluster) create(i int) error {
	if i > 0 {
		return c.join(i, 0)
	}
	_, err := c.central.run("ovsdb-tool", "create-cluster", c.file(i, "db"), schema(c.db), c.peer(i))
	return err
}

// join makes the file of a new member, joining by another one.
func (c *Cluster) join(i, by int) error {
	_, err := c.central.run("ovsdb-tool", "join-cluster", c.file(i, "db"), c.name(), c.peer(i), c.peer(by))
	return err
}

// Start starts a member on its existing data, and waits until it is part of the cluster.
func (c *Cluster) Start(i int) error {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(strings.Split(c.TCP, ",")[i], "tcp:"))
	if err != nil {
		return err
	}
	base := strings.TrimSuffix(c.file(i, "db"), ".db")
	c.servers[i], err = reaper.Start(c.members[i].Command, "ovsdb-server", "-vconsole:off", "--log-file="+base+".log", "--unixctl="+base+".ctl",
		"--remote=punix:"+base+".sock", "--remote=ptcp:"+port+":"+c.members[i].Address, base+".db")
	if err != nil {
		return err
	}
	return await(c.servers[i], func() error {
		status, err := c.status(i)
		if err == nil && (!strings.Contains(status, "Status: cluster member") || strings.Contains(status, "Leader: unknown")) {
			err = fmt.Errorf("member %d of %s: %s", i, c.name(), status)
		}
		return err
	})
}

// Stop kills a member with SIGKILL.
func (c *Cluster) Stop(i int) { stop(&c.servers[i]) }

// Replace kills a member, and has a new one without data take its place: the others forget the former first.
func (c *Cluster) Replace(i int) error {
	c.Stop(i)
	by := (i + 1) % c.Members()
	id, err := c.central.run("ovsdb-tool", "db-sid", c.file(i, "db"))
	if err == nil {
		err = await(c.servers[by], func() error { return c.forget(by, id) })
	}
	if err == nil {
		err = errors.Join(os.Remove(c.file(i, "db")), c.join(i, by), c.Start(i))
	}
	return err
}

// forget has a member ask the leader to remove another one. It returns an error until that is done: there may be no leader yet.
func (c *Cluster) forget(i int, id string) error {
	status, err := c.status(i)
	if err != nil || !strings.Contains(status, " "+id[:4]+" (") {
		return err
	}
	_, err = c.central.run("ovn-appctl", "-t", c.file(i, "ctl"), "cluster/kick", c.name(), id)
	return cmp.Or(err, fmt.Errorf("member %d of %s still knows %s", i, c.name(), id))
}

func (c *Cluster) status(i int) (string, error) {
	return c.central.run("ovn-appctl", "-t", c.file(i, "ctl"), "cluster/status", c.name())
}

// Leader returns the member that leads.
func (c *Cluster) Leader() (int, error) {
	for i, s := range c.servers {
		if s == nil {
			continue
		}
		if status, err := c.status(i); err == nil && strings.Contains(status, "Role: leader") {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s has no leader", c.name())
}

// Log lists the transactions as member i has them, in the form of ovsdb-tool show-log.
func (c *Cluster) Log(i int) (string, error) {
	return c.central.run("ovsdb-tool", "-mm", "show-log", c.file(i, "db"))
}

func (c *Cluster) close() {
	for i := range c.servers {
		c.Stop(i)
	}
}
