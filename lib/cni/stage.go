package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/ovn-kubernetes/libovsdb/model"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/sbdb"
)

// explainTimeout bounds the search for the cause of a failed ADD.
const explainTimeout = 2 * time.Second

// awaitInstalled waits until ovn-controller has installed the pod's flows. The error names the missing stage and the
// time waited.
func (a *addition) awaitInstalled(ctx context.Context) error {
	began := time.Now()
	port := names.PodPort(a.pod.namespace, a.pod.name)
	err := a.sw.WaitInstalled(ctx, a.host(), port)
	if err == nil {
		return nil
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		return types.NewError(types.ErrTryAgainLater, "the pod is not connected", oneLine(err))
	}
	waited := since(began)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTimeout)
	defer cancel()
	details := fmt.Sprintf("pod %s after %s: %s; %s", a.pod, waited, a.southboundStage(ctx, port), oneLine(err))
	return types.NewError(types.ErrTryAgainLater, "the pod is not connected", details)
}

// southboundStage returns the progress of a logical port in the Southbound database. It is queried for error messages
// only, to keep load off the database.
func (a *addition) southboundStage(ctx context.Context, port string) string {
	if a.config.OVNRemote == "" {
		return "external_ids:ovn-remote is not set, so ovn-controller has no database"
	}
	results, err := readStage(ctx, a.config, port)
	if err != nil {
		return "cannot tell the stage: " + oneLine(err)
	}
	hint := "is ovn-controller running?"
	if a.sw.ExternalIDs()["ovn-match-northd-version"] == "true" {
		hint = fmt.Sprintf("is ovn-controller running, and has it the version of ovn-northd, %s? external_ids:ovn-match-northd-version demands this: install that version here, or remove the key", northdVersion(results[2].Rows))
	}
	return interpret(results, a.config.SystemID, hint)
}

// northdVersion is the version of ovn-northd in the row of SB_Global.
func northdVersion(rows []libovsdb.Row) string {
	for _, row := range rows {
		options, _ := row["options"].(libovsdb.OvsMap)
		if version, ok := options.GoMap["northd_internal_version"]; ok {
			return fmt.Sprint(version)
		}
	}
	return "unknown"
}

// readStage reads the rows of the Port_Binding, the local Chassis and SB_Global.
func readStage(ctx context.Context, c config.Config, port string) ([]libovsdb.OperationResult, error) {
	remotes, err := config.ParseRemotes(c.OVNRemote)
	if err != nil {
		return nil, fmt.Errorf("reading external_ids:ovn-remote: %w", err)
	}
	files := ovsdb.Files{PrivateKey: c.SBPrivateKey, Certificate: c.SBCertificate, CACert: c.SBCACert}
	if strings.Contains(c.OVNRemote, "ssl:") && !exists(files.CACert) {
		return nil, fmt.Errorf("no CA certificate %s found", files.CACert) // fetching it is not the plugin's task
	}
	tls, err := ovsdb.TLSConfig(ctx, files, remotes, io.Discard)
	if err != nil {
		return nil, err
	}
	// monitor only a table with one row: the others are large
	m, err := model.NewClientDBModel("OVN_Southbound", map[string]model.Model{sbdb.SBGlobalTable: &sbdb.SBGlobal{}})
	if err != nil {
		return nil, err
	}
	sb, err := ovsdb.Open(ctx, ovsdb.Options{
		Name: "OVN's Southbound database", Remotes: remotes, TLS: tls, Model: m, Needs: "OVN 23.03", AnyMember: true,
		Tables: []ovsdb.Table{{Name: sbdb.SBGlobalTable, Columns: []string{"nb_cfg"}}},
	})
	if err != nil {
		return nil, err
	}
	defer sb.Close()
	equals := func(column, value string) []libovsdb.Condition {
		return []libovsdb.Condition{libovsdb.NewCondition(column, libovsdb.ConditionEqual, value)}
	}
	return sb.Transact(ctx, []libovsdb.Operation{
		{Op: libovsdb.OperationSelect, Table: sbdb.PortBindingTable, Where: equals("logical_port", port), Columns: []string{"chassis"}},
		{Op: libovsdb.OperationSelect, Table: sbdb.ChassisTable, Where: equals("name", c.SystemID), Columns: []string{"_uuid"}},
		{Op: libovsdb.OperationSelect, Table: sbdb.SBGlobalTable, Columns: []string{"options"},
			Where: []libovsdb.Condition{libovsdb.NewCondition("nb_cfg", libovsdb.ConditionGreaterThanOrEqual, 0)}}, // all rows
	})
}

// interpret interprets the rows of the Port_Binding and of the local Chassis. hint is about ovn-controller.
func interpret(results []libovsdb.OperationResult, chassis, hint string) string {
	bindings, here := results[0].Rows, results[1].Rows
	if len(bindings) == 0 {
		return "the Southbound database has no Port_Binding: is ovn-northd running?"
	}
	if len(here) == 0 {
		return fmt.Sprintf("chassis %s is not registered: %s", chassis, hint)
	}
	if uuid := fmt.Sprint(here[0]["_uuid"]); !strings.Contains(fmt.Sprint(bindings[0]["chassis"]), strings.Trim(uuid, "{}")) {
		return fmt.Sprintf("chassis %s has not claimed the Port_Binding: %s", chassis, hint)
	}
	return fmt.Sprintf("chassis %s has claimed the Port_Binding but not installed its flows: %s", chassis, hint)
}
