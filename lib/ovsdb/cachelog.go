package ovsdb

import (
	"github.com/go-logr/logr"
)

// A cacheLog reads libovsdb's log for two events without an API: a row is about to change, while the cache is
// locked (cache/cache.go, Populate2), and an event was dropped (AddEvent).
type cacheLog struct {
	logr.LogSink
	to *listeners
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

// row has the functions of OnRow called.
func (l cacheLog) row(table, uuid string) {
	l.c.news.Add(1)
	if !l.c.told.Load() {
		return
	}
	l.to.row(table, uuid)
}

// WithValues implements logr.LogSink.
func (l cacheLog) WithValues(keysAndValues ...any) logr.LogSink {
	return cacheLog{l.LogSink.WithValues(keysAndValues...), l.to, l.c}
}

// WithName implements logr.LogSink.
func (l cacheLog) WithName(name string) logr.LogSink {
	return cacheLog{l.LogSink.WithName(name), l.to, l.c}
}
