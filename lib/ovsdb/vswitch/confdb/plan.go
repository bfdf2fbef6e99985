package confdb

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/client"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// A Plan is a list of operations, and their description for people.
type Plan struct {
	Ops   []libovsdb.Operation
	Lines []string
}

// Add appends operations, unless err.
func (p *Plan) Add(ops []libovsdb.Operation, err error) error {
	p.Ops = append(p.Ops, ops...)
	return err
}

// Say appends a line to the description.
func (p *Plan) Say(format string, args ...any) {
	p.Lines = append(p.Lines, fmt.Sprintf(format, args...))
}

// errVanished means that another client deleted a row during our change.
var errVanished = errors.New("a row was deleted meanwhile")

// attempts limits how often a change is planned again after a conflict with another client, such as ovn-controller,
// or a restart of the server.
const attempts = 5

// Converge plans and commits. It returns the configuration number of the commit for ovs-vswitchd, or 0 if there was
// nothing to do.
func (d *DB) Converge(ctx context.Context, build func(client.Client) (Plan, error)) (int, error) {
	for attempt := 1; ; attempt++ {
		var p Plan
		err := d.Read(ctx, func(c client.Client) (err error) {
			p, err = build(c)
			return err
		})
		if err != nil || len(p.Ops) == 0 {
			return 0, err
		}
		cfg, err := d.commit(ctx, p.Ops)
		var taken *libovsdb.ConstraintViolation
		again := errors.As(err, &taken) || errors.Is(err, errVanished) || errors.Is(err, ovsdb.ErrNotConnected)
		if err == nil || attempt == attempts || !again {
			return cfg, err
		}
	}
}

// commit commits operations and raises Open_vSwitch.next_cfg with them, as ovs-vsctl does; it returns the new
// number. Once cur_cfg has reached it, ovs-vswitchd has applied the operations.
func (d *DB) commit(ctx context.Context, ops []libovsdb.Operation) (int, error) {
	all := append(slices.Clone(ops), libovsdb.Operation{
		Op: libovsdb.OperationMutate, Table: vswitchdb.OpenvSwitchTable,
		// True of the only row; libovsdb does not send an empty condition.
		Where:     []libovsdb.Condition{libovsdb.NewCondition("next_cfg", libovsdb.ConditionGreaterThanOrEqual, 0)},
		Mutations: []libovsdb.Mutation{*libovsdb.NewMutation("next_cfg", libovsdb.MutateOperationAdd, 1)},
	}, libovsdb.Operation{
		Op: libovsdb.OperationSelect, Table: vswitchdb.OpenvSwitchTable, Columns: []string{"next_cfg"},
	})
	results, err := d.db.Transact(ctx, all)
	if err != nil {
		return 0, err
	}
	for i, op := range ops {
		if op.Op != libovsdb.OperationInsert && results[i].Count == 0 {
			return 0, fmt.Errorf("%s %s: %w", op.Op, op.Table, errVanished)
		}
	}
	last := results[len(results)-1]
	if len(last.Rows) == 0 {
		return 0, errNoRoot
	}
	cfg, ok := last.Rows[0]["next_cfg"].(float64)
	if !ok {
		return 0, fmt.Errorf("reading next_cfg: %v is not a number", last.Rows[0]["next_cfg"])
	}
	return int(cfg), nil
}

// AwaitVswitchd waits until ovs-vswitchd has applied the database. It writes a new configuration number.
func (d *DB) AwaitVswitchd(ctx context.Context) error {
	cfg, err := d.commit(ctx, nil)
	if err == nil {
		err = d.AwaitApplied(ctx, cfg)
	}
	if err != nil {
		return fmt.Errorf("waiting for ovs-vswitchd: %w", err)
	}
	return nil
}

// AwaitApplied waits until ovs-vswitchd has applied the configuration cfg of Converge. It returns at once for 0.
func (d *DB) AwaitApplied(ctx context.Context, cfg int) error {
	if cfg == 0 {
		return nil
	}
	return withHint(ctx, d.Await(ctx, func(c client.Client) (bool, error) { return applied(ctx, c, cfg) }))
}

// applied reports whether ovs-vswitchd has applied the configuration cfg.
func applied(ctx context.Context, c client.Client, cfg int) (bool, error) {
	r, err := Root(ctx, c)
	return err == nil && r.CurCfg >= cfg, err
}

// withHint adds the usual cause of a timeout to err.
func withHint(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return fmt.Errorf("%w: is ovs-vswitchd running?", err)
}
