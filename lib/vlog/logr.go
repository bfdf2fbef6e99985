package vlog

import (
	"flag"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

// Logr is a module's log for a library that speaks logr, such as libovsdb.
// What such a library calls an error it will itself retry or return, so that
// its V(0) is INFO, its errors are WARN, and all other verbosities are DBG.
func (l *Log) Logr(module string) logr.Logger {
	return logr.New(sink{entry: l.Module(module)})
}

// sink implements logr.LogSink.
type sink struct {
	entry *logrus.Entry
	name  string
	told  *repeats // nil: each error is told
}

// repeats knows the errors of the last repeatAfter.
type repeats struct {
	mu   sync.Mutex
	told map[string]time.Time
}

// repeatAfter is after which time an error is told again: client-go logs one with each try, as each second during
// an outage of the API server.
const repeatAfter = 10 * time.Minute

// again reports whether an error was told already.
func (r *repeats) again(text string) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(r.told, func(_ string, at time.Time) bool { return now.Sub(at) >= repeatAfter })
	if _, ok := r.told[text]; ok {
		return true
	}
	r.told[text] = now
	return false
}

func (s sink) Init(logr.RuntimeInfo) {}

func (s sink) Enabled(v int) bool { return s.entry.Logger.IsLevelEnabled(verbosity(v)) }

func (s sink) Info(v int, msg string, kv ...any) {
	s.with(kv).entry.Log(verbosity(v), s.name+msg)
}

func (s sink) Error(err error, msg string, kv ...any) {
	e := s.with(kv).entry
	if err != nil {
		e = e.WithError(err)
	}
	level := logrus.WarnLevel
	if s.told.again(fmt.Sprint(msg, err, kv)) {
		level = logrus.DebugLevel
	}
	e.Log(level, s.name+msg)
}

func (s sink) WithValues(kv ...any) logr.LogSink { return s.with(kv) }

func (s sink) WithName(name string) logr.LogSink {
	s.name += name + ": "
	return s
}

func (s sink) with(kv []any) sink {
	if len(kv) == 0 {
		return s
	}
	fields := make(logrus.Fields, len(kv)/2)
	for i := 0; i < len(kv); i += 2 {
		var v any = "(missing)"
		if i+1 < len(kv) {
			v = kv[i+1]
		}
		if m, ok := v.(logr.Marshaler); ok {
			v = m.MarshalLog()
		}
		fields[fieldKey(kv[i])] = v
	}
	s.entry = s.entry.WithFields(fields)
	return s
}

// fieldKey keeps a library's field away from our own "module".
func fieldKey(k any) string {
	s := fmt.Sprint(k)
	if s == moduleKey {
		return "logger-" + s
	}
	return s
}

func verbosity(v int) logrus.Level {
	if v > 0 {
		return logrus.DebugLevel
	}
	return logrus.InfoLevel
}

// klogModule is where client-go's lines go.
const klogModule = "client-go"

// klogVerbosity is how much klog says while its module is at dbg: every request
// with its status and duration, but no bodies.
const klogVerbosity = 6

// TakeKlog leads klog, which is the log of client-go and is one for the whole
// process, into the module client-go: V(0) is INFO, its errors are WARN, and
// V(1) to V(6) are DBG, as are errors that were told already. Call it once, before anything logs; Close gives klog back.
func (l *Log) TakeKlog() {
	var fs flag.FlagSet
	klog.InitFlags(&fs)
	klog.SetLogger(logr.New(sink{entry: l.Module(klogModule), told: &repeats{told: map[string]time.Time{}}}))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.klog = func(most Level) {
		v := 0
		if most == Dbg {
			v = klogVerbosity
		}
		_ = fs.Set("v", strconv.Itoa(v)) // a number always parses
	}
	l.follow()
}

// follow tells klog how much to say: it filters by itself, before its logger
// is asked. The caller holds l.mu.
func (l *Log) follow() {
	if l.klog != nil {
		l.klog(l.module(klogModule).levels.most())
	}
}

func (l *Log) dropKlog() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.klog == nil {
		return
	}
	l.klog(Info)
	l.klog = nil
	klog.ClearLogger()
}
