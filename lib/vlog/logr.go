package vlog

import (
	"flag"
	"fmt"
	"strconv"

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
	e.Warn(s.name + msg)
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
// V(1) to V(6) are DBG. Call it once, before anything logs; Close gives klog back.
func (l *Log) TakeKlog() {
	var fs flag.FlagSet
	klog.InitFlags(&fs)
	klog.SetLogger(l.Logr(klogModule))
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
