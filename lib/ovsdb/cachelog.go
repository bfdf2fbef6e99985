package ovsdb

import (
	"slices"

	"github.com/go-logr/logr"
)

// OnRow has f called with each row of the cache just before it changes and before any reader of the cache's tables
// can see the change: when Transact returns, f was called for its changes. Handle passes the rows themselves, but
// later. f is not called for the first rows of a connection. f must not block, nor read the cache.
func (db *DB) OnRow(f func(table, uuid string)) (remove func()) {
	entry := &f
	db.mu.Lock()
	defer db.mu.Unlock()
	db.onRow = append(slices.Clone(db.onRow), entry)
	return func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.onRow = slices.DeleteFunc(slices.Clone(db.onRow), func(other *func(string, string)) bool { return other == entry })
	}
}

// A cacheLog reads libovsdb's log for two events without an API: a row is about to change, while the cache is
// locked (cache/cache.go, Populate2), and an event was dropped (AddEvent).
type cacheLog struct {
	logr.LogSink
	db *DB
	c  *conn
}

// The messages of libovsdb 0.8.1, and their levels.
const (
	processing      = "processing update"
	processingLevel = 5
	dropping        = "dropping event because event buffer is full"
	droppingLevel   = 0
)

// Enabled implements logr.LogSink. Both messages come at any level of the log.
func (l cacheLog) Enabled(level int) bool {
	return level == processingLevel || level == droppingLevel || l.LogSink.Enabled(level)
}

// Info implements logr.LogSink.
func (l cacheLog) Info(level int, msg string, keysAndValues ...any) {
	switch {
	case level == processingLevel && msg == processing && len(keysAndValues) == 4:
		table, _ := keysAndValues[1].(string)
		uuid, _ := keysAndValues[3].(string)
		l.row(table, uuid)
	case msg == dropping:
		l.c.dropped()
	case l.LogSink.Enabled(level):
		l.LogSink.Info(level, msg, keysAndValues...)
	}
}

// row calls the functions of OnRow.
func (l cacheLog) row(table, uuid string) {
	l.c.news.Add(1)
	if !l.c.told.Load() {
		return
	}
	l.db.mu.Lock()
	all := l.db.onRow
	l.db.mu.Unlock()
	for _, f := range all {
		(*f)(table, uuid)
	}
}

// WithValues implements logr.LogSink.
func (l cacheLog) WithValues(keysAndValues ...any) logr.LogSink {
	return cacheLog{l.LogSink.WithValues(keysAndValues...), l.db, l.c}
}

// WithName implements logr.LogSink.
func (l cacheLog) WithName(name string) logr.LogSink {
	return cacheLog{l.LogSink.WithName(name), l.db, l.c}
}
