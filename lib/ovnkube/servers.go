package ovnkube

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/dbserver"
	"ovn-k8s/lib/settings"
)

// serverResync is the time between two looks at the servers: a database that is replaced loses its rows.
const serverResync = 10 * time.Second

// serverRole is the part of a master that configures the servers of databases on its host, by their unix sockets.
func serverRole(o Options) role {
	log := settings.Log(o.Log, Program)
	c := newConfigured(log)
	serve := func(ctx context.Context, s settings.Session, ready func()) error {
		for {
			if err := c.configure(ctx, servers(options.Of(s.Config))); err != nil {
				return err
			}
			ready()
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(serverResync):
			}
		}
	}
	return role{Role: settings.Role{Log: log, Part: "servers", Quiet: true, Serve: serve}, differences: serverDifferences}
}

// configured are the servers configured by this process. Members of a RAFT cluster share the row SSL: a process writing its
// files again and again would fight with a master with others.
type configured struct {
	log     *logrus.Entry
	servers map[string]dbserver.Server // last ones, by database
	foreign map[string]ovsdb.Files     // files of others, as logged, by database
}

func newConfigured(log *logrus.Entry) *configured {
	return &configured{log: log, servers: map[string]dbserver.Server{}, foreign: map[string]ovsdb.Files{}}
}

// configure configures all servers within reach, each once. Then it only adds missing rows.
func (c *configured) configure(ctx context.Context, all []dbserver.Server) error {
	var failed []error
	for _, server := range all {
		failed = append(failed, c.one(ctx, server))
	}
	return errors.Join(failed...)
}

func (c *configured) one(ctx context.Context, server dbserver.Server) error {
	var (
		changed bool
		foreign ovsdb.Files
		err     error
	)
	if c.servers[server.Database] == server {
		changed, foreign, err = server.Restore(ctx, ourConnection(), nil)
	} else {
		changed, err = server.Configure(ctx, ourConnection(), nil)
	}
	if err != nil {
		return err
	}
	c.servers[server.Database] = server
	if changed {
		c.log.Infof("%s: it listens at %s with %s", server.Database, server.Target, server.Certificate)
	}
	if foreign != c.foreign[server.Database] && foreign != (ovsdb.Files{}) {
		c.log.Warnf("%s: another program has set the certificate %s in the row SSL, in place of %s; it stays: give all masters the same files", server.Database, foreign.Certificate, server.Certificate)
	}
	c.foreign[server.Database] = foreign
	return nil
}

// serverDifferences has a line for each server to configure.
func serverDifferences(ctx context.Context, s settings.Session) (lines []string, err error) {
	for _, server := range servers(options.Of(s.Config)) {
		differs, err := server.Differs(ctx, ourConnection())
		switch {
		case err != nil:
			lines = append(lines, fmt.Sprintf("! server of %s: %v", server.Database, err))
		case differs:
			lines = append(lines, fmt.Sprintf("~ server of %s: listen at %s with %s", server.Database, server.Target, server.Certificate))
		}
	}
	return lines, nil
}

// ourConnection are external_ids of the connections that a master adds.
func ourConnection() map[string]string { return map[string]string{"k8s-ovnkube": "server"} }

// servers are the servers to configure. Without an address to listen at, a server has IPv4 only (ovsdb(7)).
func servers(o options.Options) (all []dbserver.Server) {
	add := func(database, socket string, f ovsdb.Files, remotes []string) {
		if f.PrivateKey != "" && len(remotes) > 0 {
			target := "pssl" + remotes[0][strings.LastIndex(remotes[0], ":"):]
			if slices.ContainsFunc(remotes, func(r string) bool { return strings.Contains(r, ":[") }) {
				target += ":[::]"
			}
			all = append(all, dbserver.Server{Database: database, Socket: socket, Target: target, Files: f})
		}
	}
	add(dbserver.Northbound, o.NBSocket, ovsdb.Files(o.NBServer), o.NB)
	add(dbserver.Southbound, path.Join(path.Dir(o.NBSocket), "ovnsb_db.sock"), ovsdb.Files(o.SBServer), o.SB)
	return all
}
