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

	"ovn-k8s/lib/reconcile"
)

// Logr is a module's log for libraries using logr, such as libovsdb. Libraries retry or return their errors, so V(0)
// is INFO, errors are WARN, and all other verbosities are DBG.
func (l *Log) Logr(module string) logr.Logger {
	return logr.New(sink{entry: l.Module(module)})
}

// sink implements logr.LogSink.
type sink struct {
	entry   *logrus.Entry
	name    string
	repeats *repeats // nil: repeated errors are logged, too
}

// repeats remembers the errors of the last repeatAfter.
type repeats struct {
	mu     sync.Mutex
	logged map[string]time.Time
}

// repeatAfter is the interval between logs of the same error. During an outage of the API server, client-go logs one
// with each retry, up to one a second.
const repeatAfter = 10 * time.Minute

// again reports whether an error was already logged.
func (r *repeats) again(text string) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(r.logged, func(_ string, at time.Time) bool { return now.Sub(at) >= repeatAfter })
	if _, ok := r.logged[text]; ok {
		return true
	}
	r.logged[text] = now
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
	if s.repeats.again(reason(err) + fmt.Sprint(msg, kv)) {
		level = logrus.DebugLevel
	}
	e.Log(level, s.name+msg)
}

// reason is the text of an error as far as it is the same with each retry.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return reconcile.Reason(err)
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

// fieldKey renames a library's field "module", which is our own.
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

// klogModule is the module for lines of client-go.
const klogModule = "client-go"

// klogVerbosity is the verbosity of klog while its module is at dbg: every request with its status and duration, but
// no bodies.
const klogVerbosity = 6

// TakeKlog redirects klog, the process-wide log of client-go, to the module client-go: V(0) is INFO, errors are WARN,
// V(1) to V(6) and repeated errors are DBG. Call it once, before anything logs. Close restores klog.
func (l *Log) TakeKlog() {
	var fs flag.FlagSet
	klog.InitFlags(&fs)
	klog.SetLogger(logr.New(sink{entry: l.Module(klogModule), repeats: &repeats{logged: map[string]time.Time{}}}))
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

// follow sets the verbosity of klog, since klog filters before it calls its logger. The caller holds l.mu.
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
