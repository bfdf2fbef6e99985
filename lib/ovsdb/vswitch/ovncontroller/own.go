package ovncontroller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/client"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/desired/hostids"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// Own gives the host the wanted keys of external_ids, and former values to keys of an earlier call that are not wanted any
// more: see hostids.Plan. It returns the changes, one a line; without any it writes nothing.
func (s Settings) Own(ctx context.Context, want map[string]string) (changes []string, err error) {
	return s.converge(ctx, func(c client.Client) (confdb.Plan, error) { return planOwn(ctx, c, want) })
}

// PlanOwn returns the changes of Own.
func (s Settings) PlanOwn(ctx context.Context, want map[string]string) (changes []string, err error) {
	return s.plan(ctx, func(c client.Client) (confdb.Plan, error) { return planOwn(ctx, c, want) })
}

// converge commits a plan, and returns its lines.
func (s Settings) converge(ctx context.Context, build func(client.Client) (confdb.Plan, error)) (changes []string, err error) {
	_, err = s.DB.Converge(ctx, func(c client.Client) (confdb.Plan, error) {
		pl, err := build(c)
		changes = pl.Lines
		return pl, err
	})
	if err != nil {
		return nil, fmt.Errorf("setting Open_vSwitch: %w", err)
	}
	return changes, nil
}

// plan returns the lines of a plan.
func (s Settings) plan(ctx context.Context, build func(client.Client) (confdb.Plan, error)) (changes []string, err error) {
	err = s.DB.Read(ctx, func(c client.Client) error {
		pl, err := build(c)
		changes = pl.Lines
		return err
	})
	return changes, err
}

func planOwn(ctx context.Context, c client.Client, want map[string]string) (pl confdb.Plan, err error) {
	root, err := confdb.Root(ctx, c)
	if err != nil {
		return pl, err
	}
	remove, insert := hostids.Plan(root.ExternalIDs, want)
	if len(remove)+len(insert) == 0 {
		return pl, nil
	}
	return confdb.Plan{Ops: []libovsdb.Operation{mutateIDs(root, remove, insert)}, Lines: describe(remove, insert)}, nil
}

// describe lists changes, without those of the record of former values.
func describe(remove, insert map[string]string) (lines []string) {
	for _, key := range slices.Sorted(maps.Keys(insert)) {
		if key != names.FormerIDs {
			lines = append(lines, fmt.Sprintf("set external_ids:%s=%s (was %q)", key, insert[key], remove[key]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(remove)) {
		if _, replaced := insert[key]; !replaced && key != names.FormerIDs {
			lines = append(lines, fmt.Sprintf("remove external_ids:%s (was %q)", key, remove[key]))
		}
	}
	return lines
}

// mutateIDs changes keys of external_ids. The mutator "insert" leaves present keys alone, "delete" keys with other values
// (RFC 7047, section 5.1).
func mutateIDs(root *vswitchdb.OpenvSwitch, remove, insert map[string]string) libovsdb.Operation {
	return libovsdb.Operation{
		Op: libovsdb.OperationMutate, Table: vswitchdb.OpenvSwitchTable, Where: isRow(root.UUID),
		Mutations: []libovsdb.Mutation{
			*libovsdb.NewMutation("external_ids", libovsdb.MutateOperationDelete, ovsMap(remove)),
			*libovsdb.NewMutation("external_ids", libovsdb.MutateOperationInsert, ovsMap(insert)),
		},
	}
}

func isRow(uuid string) []libovsdb.Condition {
	return []libovsdb.Condition{libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, libovsdb.UUID{GoUUID: uuid})}
}

// TLS are the files with which ovn-controller connects to an ssl: database: the row SSL of ovs-vswitchd.conf.db(5).
type TLS struct {
	PrivateKey, Certificate, CA string
	// Bootstrap has the first connection write CA, if the file is missing.
	Bootstrap bool
}

// OwnTLS gives the host these files, or takes back those of an earlier call if files is nil. It returns the changes, one a
// line. A row of an operator with the same files is used as it is; one with other files is an error.
func (s Settings) OwnTLS(ctx context.Context, files *TLS) (changes []string, err error) {
	return s.converge(ctx, func(c client.Client) (confdb.Plan, error) { return planTLS(ctx, c, files) })
}

// PlanTLS returns the changes of OwnTLS.
func (s Settings) PlanTLS(ctx context.Context, files *TLS) (changes []string, err error) {
	return s.plan(ctx, func(c client.Client) (confdb.Plan, error) { return planTLS(ctx, c, files) })
}

func planTLS(ctx context.Context, c client.Client, files *TLS) (pl confdb.Plan, err error) {
	root, err := confdb.Root(ctx, c)
	if err != nil {
		return pl, err
	}
	is, err := sslOf(ctx, c, root)
	if err != nil {
		return pl, err
	}
	ours := is != nil && is.ExternalIDs[names.Owner] == names.Ovnkube
	switch {
	case files == nil && !ours, is != nil && files != nil && files.are(is, ours):
	case files == nil:
		pl.Say("remove the SSL files of Open_vSwitch: %s, %s and %s", is.PrivateKey, is.Certificate, is.CaCert)
		pl.Ops = append(pl.Ops, setSSL(root, libovsdb.OvsSet{GoSet: []any{}}))
	case is != nil && !ours:
		return pl, confdb.Conflict("Open_vSwitch has SSL files already, %s, %s and %s: remove them by \"ovs-vsctl del-ssl\", or give the same as options", is.PrivateKey, is.Certificate, is.CaCert)
	default:
		pl.Say("set the SSL files of Open_vSwitch: %s, %s and %s", files.PrivateKey, files.Certificate, files.CA)
		pl.Ops = append(pl.Ops, files.write(root, is)...)
	}
	return pl, nil
}

// are reports whether a row has these files. Whether an operator's row bootstraps the CA does not matter.
func (f TLS) are(row *vswitchdb.SSL, ours bool) bool {
	return f.PrivateKey == row.PrivateKey && f.Certificate == row.Certificate && f.CA == row.CaCert && (!ours || f.Bootstrap == row.BootstrapCaCert)
}

// write writes the files into a row, a new one if there is none.
func (f TLS) write(root *vswitchdb.OpenvSwitch, is *vswitchdb.SSL) []libovsdb.Operation {
	if is != nil {
		return []libovsdb.Operation{{Op: libovsdb.OperationUpdate, Table: vswitchdb.SSLTable, Where: isRow(is.UUID), Row: f.row()}}
	}
	return []libovsdb.Operation{
		{Op: libovsdb.OperationInsert, Table: vswitchdb.SSLTable, UUIDName: "tls", Row: f.row()},
		setSSL(root, libovsdb.UUID{GoUUID: "tls"}),
	}
}

func sslOf(ctx context.Context, c client.Client, root *vswitchdb.OpenvSwitch) (*vswitchdb.SSL, error) {
	var rows []*vswitchdb.SSL
	if err := confdb.List(ctx, c, &rows); err != nil {
		return nil, err
	}
	for _, r := range rows {
		if root.SSL != nil && r.UUID == *root.SSL {
			return r, nil
		}
	}
	return nil, nil
}

func (f TLS) row() libovsdb.Row {
	return libovsdb.Row{
		"private_key": f.PrivateKey, "certificate": f.Certificate, "ca_cert": f.CA, "bootstrap_ca_cert": f.Bootstrap,
		"external_ids": ovsMap(map[string]string{names.Owner: names.Ovnkube}),
	}
}

func setSSL(root *vswitchdb.OpenvSwitch, value any) libovsdb.Operation {
	return libovsdb.Operation{Op: libovsdb.OperationUpdate, Table: vswitchdb.OpenvSwitchTable, Where: isRow(root.UUID), Row: libovsdb.Row{"ssl": value}}
}
