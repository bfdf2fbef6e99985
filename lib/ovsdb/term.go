package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb/nbdb"
)

// A Leader is the one client with write access to the Northbound database, according to the fencing token
// names.Leader in external_ids of NB_Global. The zero Leader means no token.
type Leader struct {
	Identity string    // of the process; without spaces
	Term     uint64    // counts the leaders
	Since    time.Time // when the term began
	Lease    string    // "namespace/name" of the leader's Lease; "" in tokens of former releases
	token    string    // the whole text, also if written by hand
}

// String describes a leader in a log line.
func (l Leader) String() string {
	switch {
	case l.token == "":
		return "nobody"
	case l.Identity == "":
		return fmt.Sprintf("%q, which is no token of ours", l.token)
	}
	return fmt.Sprintf("%s since %s (term %d)", l.Identity, l.Since.Format(time.RFC3339), l.Term)
}

// tokenFormat has the identity, the term and its begin. tokenLease and the Lease follow; former releases ignore them.
const (
	tokenFormat = "%s term %d since %s"
	tokenLease  = " with Lease "
)

func parseLeader(token string) Leader {
	l := Leader{token: token}
	var since string
	var identity string
	var term uint64
	head, lease, _ := strings.Cut(token, tokenLease)
	if n, err := fmt.Sscanf(head, tokenFormat, &identity, &term, &since); err != nil || n != 3 {
		return l
	}
	at, err := time.Parse(time.RFC3339, since)
	if err != nil {
		return l
	}
	l.Identity, l.Term, l.Since, l.Lease = identity, term, at, lease
	return l
}

// ErrDeposed ends a Term: the database has another leader's token.
var ErrDeposed = errors.New("another watcher leads")

// global returns the row of NB_Global, or nil before ovn-northd made it.
func (db *DB) global() (*nbdb.NBGlobal, error) {
	rows := db.Cache()
	if rows == nil {
		return nil, fmt.Errorf("%s: %w", db.options.Name, ErrNotConnected)
	}
	for _, m := range rows.Table(nbdb.NBGlobalTable).RowsShallow() {
		return m.(*nbdb.NBGlobal), nil
	}
	return nil, nil
}

// Leader returns the leader named by the token in the database.
func (db *DB) Leader() (Leader, error) {
	row, err := db.global()
	if err != nil || row == nil {
		return Leader{}, err
	}
	l := parseLeader(row.ExternalIDs[names.Leader])
	db.noteTerm(l.Term)
	return l, nil
}

// noteTerm records the latest term, so that the next one has a higher number even if the token was removed.
func (db *DB) noteTerm(term uint64) {
	for {
		latest := db.latestTerm.Load()
		if term <= latest || db.latestTerm.CompareAndSwap(latest, term) {
			return
		}
	}
}

// Lead begins the next term, with identity as its leader, elected with lease ("namespace/name"). When it returns, no other Term can commit anything, and
// the cache has all their commits. holds reports whether this process is elected: only then it may write its token
// again after a removal. OVSDB locks (RFC 7047 section 4.1.8) are no alternative: each member of a cluster has its
// own, and they are lost with the connection.
func (db *DB) Lead(ctx context.Context, identity, lease string, holds func() bool) (*Term, error) {
	if err := db.Sync(ctx); err != nil {
		return nil, err
	}
	old, err := db.Leader()
	if err != nil {
		return nil, err
	}
	now := Leader{Identity: identity, Term: db.latestTerm.Load() + 1, Since: time.Now().UTC().Truncate(time.Second), Lease: lease}
	now.token = fmt.Sprintf(tokenFormat, identity, now.Term, now.Since.Format(time.RFC3339)) + tokenLease + lease
	t := &Term{db: db, leader: now, holds: holds}
	if err := t.replace(ctx, old); err != nil {
		return nil, fmt.Errorf("beginning term %d: %w", now.Term, err)
	}
	db.noteTerm(now.Term)
	return t, nil
}

// A Term writes the database as its leader. Each transaction asserts the token: the server does the assertion and
// the changes in one step, independent of clocks and Leases.
type Term struct {
	db     *DB
	leader Leader
	holds  func() bool

	mu      sync.Mutex
	deposed error
}

// Leader returns the leader of the term.
func (t *Term) Leader() Leader { return t.leader }

// Cache is DB.Cache.
func (t *Term) Cache() *cache.TableCache { return t.db.Cache() }

// replace writes the token in place of old's, or fails if the database has another token. An insert of a present
// key into a map does nothing (RFC 7047 section 5.1), and then the assertion fails.
func (t *Term) replace(ctx context.Context, old Leader) error {
	row, err := t.db.global()
	if err != nil {
		return err
	}
	ids := func(token string) ovsdb.OvsMap {
		return ovsdb.OvsMap{GoMap: map[any]any{names.Leader: token}}
	}
	if row == nil { // ovn-northd has not made it; maxRows allows only one
		_, err := t.db.Transact(ctx, []ovsdb.Operation{
			{Op: ovsdb.OperationInsert, Table: nbdb.NBGlobalTable, Row: ovsdb.Row{"external_ids": ids(t.leader.token)}}, t.comment(),
		})
		return err
	}
	mutations := []ovsdb.Mutation{{Column: "external_ids", Mutator: ovsdb.MutateOperationInsert, Value: ids(t.leader.token)}}
	if old.token != "" {
		remove := ovsdb.Mutation{Column: "external_ids", Mutator: ovsdb.MutateOperationDelete, Value: ids(old.token)}
		mutations = append([]ovsdb.Mutation{remove}, mutations...)
	}
	where := []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: row.UUID})}
	_, err = t.db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationMutate, Table: nbdb.NBGlobalTable, Where: where, Mutations: mutations}, t.assertion(row.UUID), t.comment(),
	})
	return err
}

// assertion fails unless the token is in the database (RFC 7047 section 5.2.6).
func (t *Term) assertion(uuid string) ovsdb.Operation {
	now := 0
	token := ovsdb.OvsMap{GoMap: map[any]any{names.Leader: t.leader.token}}
	return ovsdb.Operation{
		Op: ovsdb.OperationWait, Table: nbdb.NBGlobalTable, Timeout: &now, Until: string(ovsdb.WaitConditionEqual),
		Where:   []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, token)},
		Columns: []string{"_uuid"}, Rows: []ovsdb.Row{{"_uuid": ovsdb.UUID{GoUUID: uuid}}},
	}
}

// comment names the writer in the database's log: see ovsdb-tool(1), show-log.
func (t *Term) comment() ovsdb.Operation {
	text := fmt.Sprintf("ovn-k8s-watcher %s term %d", t.leader.Identity, t.leader.Term)
	return ovsdb.Operation{Op: ovsdb.OperationComment, Comment: &text}
}

// Check returns ErrDeposed, with the name of the leader, if the database has another token.
func (t *Term) Check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.deposed != nil {
		return t.deposed
	}
	now, err := t.db.Leader()
	if err == nil && now.token != "" && now.token != t.leader.token {
		t.deposed = fmt.Errorf("%w: %s", ErrDeposed, now)
	}
	return t.deposed
}

// Confirm reports whether the database has the term's token. It waits for the cache first.
func (t *Term) Confirm(ctx context.Context) (bool, error) {
	if err := t.db.Sync(ctx); err != nil {
		return false, err
	}
	now, err := t.db.Leader()
	return now.token == t.leader.token && t.Check() == nil, err
}

// Removed reports whether the database has no token at all.
func (t *Term) Removed() bool {
	now, err := t.db.Leader()
	return err == nil && now.token == ""
}

// Restore writes the token again if it was removed, by hand or with the database. A leader no longer elected does
// not: another one may have led since.
func (t *Term) Restore(ctx context.Context) error {
	if err := t.Check(); err != nil {
		return err
	}
	now, err := t.db.Leader()
	switch {
	case err != nil || now.token != "":
		return err
	case !t.holds():
		return t.removed()
	}
	if err := t.replace(ctx, now); err != nil {
		return t.explain(ctx, err)
	}
	return nil
}

// removed is the error of a term if the database has no token.
func (t *Term) removed() error {
	return fmt.Errorf("the token of term %d was removed: %w", t.leader.Term, ErrNotConnected)
}

// Transact is DB.Transact for the leader. It returns ErrDeposed, for ever, once another leader has a token. It
// restores a removed token.
func (t *Term) Transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	if err := t.Restore(ctx); err != nil {
		return nil, err
	}
	row, err := t.db.global()
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, fmt.Errorf("%s has no NB_Global: %w", t.db.options.Name, ErrNotConnected)
	}
	results, err := t.db.Transact(ctx, append(append([]ovsdb.Operation{t.assertion(row.UUID)}, ops...), t.comment()))
	var refused *Refused
	if errors.As(err, &refused) && refused.Index == 0 {
		return nil, t.explain(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	return results[1 : len(results)-1], nil
}

// explain returns the reason for the failed assertion. It is no ovsdb.OperationError: smaller transactions would
// fail as well.
func (t *Term) explain(ctx context.Context, failed error) error {
	if err := t.db.Sync(ctx); err != nil {
		return err
	}
	if err := t.Check(); err != nil {
		return err
	}
	return fmt.Errorf("the token of term %d was removed; %w: %s", t.leader.Term, ErrNotConnected, strings.ReplaceAll(failed.Error(), "\n", " "))
}
