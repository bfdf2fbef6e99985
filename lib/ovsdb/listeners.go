package ovsdb

import (
	"slices"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
)

// listeners are told the changes of a database, over all connections.
type listeners struct {
	mu       sync.Mutex
	handlers []*cache.EventHandler // of Handle; replaced at a change
	onRow    []*func(table, uuid string)
}

// Handle has h called for all changes of the cache, in order, on this and all later connections. Changes between
// two connections are not reported, and some of a connection's first rows may be reported as added: compare in onUp
// of Run. h must not block. After remove, a last call of h may still be running; nothing else of h is kept.
func (db *DB) Handle(h cache.EventHandler) (remove func()) {
	return add(&db.listeners, &db.handlers, &h)
}

// OnRow has f called with each row of the cache just before it changes and before any reader of the cache's tables
// can see the change: when Transact returns, f was called for its changes. Handle passes the rows themselves, but
// later. f is not called for the first rows of a connection. f must not block, nor read the cache.
func (db *DB) OnRow(f func(table, uuid string)) (remove func()) {
	return add(&db.listeners, &db.onRow, &f)
}

// add adds an entry to a list, until remove is called. It replaces the list: others may be reading it.
func add[T any](l *listeners, list *[]*T, entry *T) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*list = append(slices.Clone(*list), entry)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		*list = slices.DeleteFunc(slices.Clone(*list), func(other *T) bool { return other == entry })
	}
}

// each calls f with each handler.
func (l *listeners) each(f func(cache.EventHandler)) {
	l.mu.Lock()
	handlers := l.handlers
	l.mu.Unlock()
	for _, h := range handlers {
		f(*h)
	}
}

// row calls the functions of OnRow.
func (l *listeners) row(table, uuid string) {
	l.mu.Lock()
	all := l.onRow
	l.mu.Unlock()
	for _, f := range all {
		(*f)(table, uuid)
	}
}

// dispatcher is the one handler of a connection's cache: a cache cannot remove a handler.
func (l *listeners) dispatcher() cache.EventHandler {
	return &cache.EventHandlerFuncs{
		AddFunc: func(table string, m model.Model) {
			l.each(func(h cache.EventHandler) { h.OnAdd(table, m) })
		},
		UpdateFunc: func(table string, before, after model.Model) {
			l.each(func(h cache.EventHandler) { h.OnUpdate(table, before, after) })
		},
		DeleteFunc: func(table string, m model.Model) {
			l.each(func(h cache.EventHandler) { h.OnDelete(table, m) })
		},
	}
}
