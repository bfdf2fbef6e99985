package ovnkube

import (
	"context"
	"path"
	"strings"

	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/dbserver"
	"ovn-k8s/lib/settings"
)

// serverRole is the part of a master that configures the servers of databases on its host, by their unix sockets.
func serverRole(o Options) role {
	log := settings.Log(o.Log, Program)
	return role{Role: settings.Role{Log: log, Quiet: true, Serve: func(ctx context.Context, s settings.Session, ready func()) error {
		for _, server := range servers(options.Of(s.Config)) {
			changed, err := server.Configure(ctx, map[string]string{"k8s-ovnkube": "server"}, nil)
			if err != nil {
				return err
			}
			if changed {
				log.Infof("%s: it listens at %s with %s", server.Database, server.Target, server.Certificate)
			}
		}
		ready()
		<-ctx.Done()
		return ctx.Err()
	}}}
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
