package ovnkube

import (
	"context"
	"errors"
	"fmt"
	"path"
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
	serve := func(ctx context.Context, s settings.Session, ready func()) error {
		for {
			if err := configureServers(ctx, servers(options.Of(s.Config)), log); err != nil {
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
	return role{Role: settings.Role{Log: log, Quiet: true, Serve: serve}, differences: serverDifferences}
}

// configureServers configures all servers within reach.
func configureServers(ctx context.Context, all []dbserver.Server, log *logrus.Entry) error {
	var failed []error
	for _, server := range all {
		changed, err := server.Configure(ctx, map[string]string{"k8s-ovnkube": "server"}, nil)
		failed = append(failed, err)
		if changed {
			log.Infof("%s: it listens at %s with %s", server.Database, server.Target, server.Certificate)
		}
	}
	return errors.Join(failed...)
}

// serverDifferences has a line for each server to configure.
func serverDifferences(ctx context.Context, s settings.Session) (lines []string, err error) {
	for _, server := range servers(options.Of(s.Config)) {
		differs, err := server.Differs(ctx)
		switch {
		case err != nil:
			lines = append(lines, fmt.Sprintf("! server of %s: %v", server.Database, err))
		case differs:
			lines = append(lines, fmt.Sprintf("~ server of %s: listen at %s with %s", server.Database, server.Target, server.Certificate))
		}
	}
	return lines, nil
}

// servers are the servers to configure.
func servers(o options.Options) (all []dbserver.Server) {
	add := func(database, socket string, f ovsdb.Files, remotes []string) {
		if f.PrivateKey != "" && len(remotes) > 0 {
			target := "pssl" + remotes[0][strings.LastIndex(remotes[0], ":"):]
			all = append(all, dbserver.Server{Database: database, Socket: socket, Target: target, Files: f})
		}
	}
	add(dbserver.Northbound, o.NBSocket, ovsdb.Files(o.NBServer), o.NB)
	add(dbserver.Southbound, path.Join(path.Dir(o.NBSocket), "ovnsb_db.sock"), ovsdb.Files(o.SBServer), o.SB)
	return all
}
