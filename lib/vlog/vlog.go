// Package vlog gives logrus the options, levels, line format and run-time commands of Open vSwitch's vlog
// (ovs-appctl(8), «Logging Commands»), so that all daemons of a host are used alike.
//
// A line looks like
//
//	2026-11-21T07:05:38.857Z|00001|watcher|INFO|attached pod=default/web-0
//
// and is always one line: fields follow the message, sorted by key, quoted if they contain a space; line breaks and
// control characters are escaped. Each module has a level for each of the destinations console, syslog and file. -v
// and vlog/set change them, e.g. -vfile:dbg -vconsole:emer.
//
// -vpattern:DEST:PATTERN changes the format of lines. Escapes of a pattern:
//
//	%D{FORMAT} %d{FORMAT}  UTC and local time by strftime(3); # is a digit of the second's fraction
//	%N %c %p %m            the line's number, module, level, and message with its fields
//	%A %E %P %t %T         the program's name, host and process ID; "main"; nothing
//	%r %B                  milliseconds since the program started; syslog's priority
//	%n %%                  a newline; a percent sign
//
// with "-", "0" and a field width in between as in %05N or %-8c.
package vlog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/syslog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
)

// defaultFile is the value of --log-file without a file name. It is no plausible relative file name.
const defaultFile = "<default>"

// Options are a program's log options.
type Options struct {
	Verbose []string `short:"v" long:"verbose" optional:"yes" optional-value:"dbg" unquote:"false" value-name:"SPEC" description:"set log levels: words for a module, a destination (console, syslog, file) and a level (off, emer, err, warn, info, dbg), as in -vfile:info; or pattern:DEST:PATTERN. Alone: everything at dbg. May be repeated; each counts"`
	LogFile string   `long:"log-file" optional:"yes" optional-value:"<default>" unquote:"false" value-name:"FILE" description:"log to FILE too; without =FILE, to PROGRAM.log in the log directory"`
	// Rotation is that of LogFile.
	Rotation Rotation `no-flag:"yes"`
}

// A Log writes lines to the console, the system log and a file. It is safe for concurrent use.
type Log struct {
	program *program

	mu       sync.Mutex
	seq      int64
	modules  map[string]*module // by name in lower case
	base     levels             // of modules to be created
	patterns [dests]pattern
	text     [dests]string // the patterns as they were given
	console  io.Writer
	syslog   *syslog.Writer // nil: there is none
	path     string         // "": no --log-file
	file     *os.File       // nil: closed
	rotation Rotation
	stuck    bool        // the last rotation has failed
	klog     func(Level) // nil: TakeKlog was not called
}

type levels [dests]Level

// A module's levels, and the logger that its entries share.
type module struct {
	name   string
	levels levels
	logger *logrus.Logger // nil until Module is called
}

// New opens the log of a program. All levels are info unless o changes them. A relative o.LogFile lies in $OVS_LOGDIR
// or /var/log/openvswitch. Lines for syslog are dropped on a host without it. The error names the wrong argument or
// file.
func New(name string, o Options, console io.Writer) (*Log, error) {
	host, _ := os.Hostname() // only for %E
	l := &Log{
		program: &program{name: name, host: cmp.Or(host, "-"), pid: os.Getpid(), start: time.Now()},
		modules: make(map[string]*module),
		base:    levels{Info, Info, Info},
		console: console,
	}
	l.setPattern(AnyDest, DefaultPattern)
	l.setPattern(Syslog, syslogPattern)
	if l.syslog, _ = syslog.New(syslog.LOG_DAEMON, name); l.syslog == nil {
		l.base[Syslog] = Off
	}
	if err := l.start(o); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Log) start(o Options) error {
	for _, arg := range o.Verbose {
		if err := l.startSpec(arg); err != nil {
			return fmt.Errorf("processing %q: %w", arg, err)
		}
	}
	if o.LogFile == "" {
		return nil
	}
	l.path, l.rotation = filePath(l.program.name, o.LogFile), o.Rotation
	return l.reopen()
}

// filePath is the log file for --log-file=value.
func filePath(program, value string) string {
	if value == defaultFile {
		value = program + ".log"
	}
	if !filepath.IsAbs(value) {
		value = filepath.Join(cmp.Or(os.Getenv("OVS_LOGDIR"), "/var/log/openvswitch"), value)
	}
	if abs, err := filepath.Abs(value); err == nil {
		return abs // a daemon changes its working directory
	}
	return value
}

// startSpec applies a -v argument. No module exists yet, so unknown words are accepted as modules, but only together
// with a level: "-vfile:inof" is a typo.
func (l *Log) startSpec(arg string) error {
	spec, err := ParseSpec(arg)
	if err != nil {
		return err
	}
	if spec.Module != "" && !spec.Explicit {
		return fmt.Errorf("no destination, level, or module %q (a module takes a level, as in %s:dbg)", spec.Module, spec.Module)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if spec.Module != "" {
		l.module(spec.Module)
	}
	return l.apply(spec)
}

// apply makes a change. The caller holds l.mu.
func (l *Log) apply(s Spec) error {
	if s.Pattern != "" {
		l.setPattern(s.Dest, s.Pattern)
		return nil
	}
	if s.Module != "" {
		m, ok := l.modules[strings.ToLower(s.Module)]
		if !ok {
			return fmt.Errorf("no destination, level, or module %q", s.Module)
		}
		m.set(s)
		l.follow()
		return nil
	}
	l.base.set(s)
	for _, m := range l.modules {
		m.set(s)
	}
	l.follow()
	return nil
}

// setPattern sets a valid pattern.
func (l *Log) setPattern(d Dest, text string) {
	p, _ := parsePattern(text) // ParseSpec has checked it
	for i := range dests {
		if d == AnyDest || d == Dest(i) {
			l.patterns[i], l.text[i] = p, text
		}
	}
}

func (v *levels) set(s Spec) {
	for i := range v {
		if s.Dest == AnyDest || s.Dest == Dest(i) {
			v[i] = s.Level
		}
	}
}

func (v levels) most() Level { return max(v[Console], v[Syslog], v[File]) }

func (m *module) set(s Spec) {
	m.levels.set(s)
	if m.logger != nil {
		m.logger.SetLevel(logrusLevels[m.levels.most()])
	}
}

// module finds or creates a module. The caller holds l.mu.
func (l *Log) module(name string) *module {
	key := strings.ToLower(name)
	m, ok := l.modules[key]
	if !ok {
		m = &module{name: name, levels: l.base}
		l.modules[key] = m
	}
	return m
}

// Module is the log of one module, created at its first use. Its name appears in vlog/list, vlog/set and log lines.
func (l *Log) Module(name string) *logrus.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.module(name)
	if m.logger == nil {
		m.name = name // -v may have spelled it in another case
		m.logger = logrus.New()
		m.logger.SetOutput(io.Discard)
		m.logger.SetFormatter(silent{})
		m.logger.SetLevel(logrusLevels[m.levels.most()])
		m.logger.AddHook(hook{l, m})
		l.follow()
	}
	return m.logger.WithField(moduleKey, name)
}

// hook sends a module's entries to the Log.
type hook struct {
	log    *Log
	module *module
}

// Levels implements logrus.Hook.
func (h hook) Levels() []logrus.Level {
	var all []logrus.Level
	for l := logrus.PanicLevel; l <= finest; l++ {
		all = append(all, l)
	}
	return all
}

// Fire implements logrus.Hook. A failing destination must not stop the program, and there is no other place to report
// it.
func (h hook) Fire(e *logrus.Entry) error {
	if err := h.log.write(h.module, e); err != nil {
		h.log.Module("vlog").Warnf("log file %s: it grows, because it cannot be rotated: %v", h.log.path, err)
	}
	return nil
}

// silent is a formatter without output: the hook writes the lines.
type silent struct{}

// Format implements logrus.Formatter.
func (silent) Format(*logrus.Entry) ([]byte, error) { return nil, nil }

// write writes a line. The error is news about the rotation of the log file.
func (l *Log) write(m *module, e *logrus.Entry) error {
	ln := line{time: e.Time, level: levelOf(e.Level), message: message(e), program: l.program}
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.module = m.name
	if ln.level > m.levels.most() {
		return nil
	}
	l.seq++
	ln.seq = l.seq
	if ln.level <= m.levels[Console] && l.console != nil {
		_ = l.patterns[Console].write(l.console, ln)
	}
	file := &fileWriter{Log: l}
	if ln.level <= m.levels[File] && l.file != nil {
		_ = l.patterns[File].write(file, ln)
	}
	if ln.level <= m.levels[Syslog] && l.syslog != nil {
		_ = l.patterns[Syslog].write(severity{l.syslog, ln.level}, ln)
	}
	return file.news
}

// severity writes to syslog at one level.
type severity struct {
	w     *syslog.Writer
	level Level
}

// Write implements io.Writer.
func (s severity) Write(b []byte) (int, error) {
	var err error
	switch text := string(b); s.level.priority() {
	case syslog.LOG_ALERT:
		err = s.w.Alert(text)
	case syslog.LOG_ERR:
		err = s.w.Err(text)
	case syslog.LOG_WARNING:
		err = s.w.Warning(text)
	case syslog.LOG_NOTICE:
		err = s.w.Notice(text)
	default:
		err = s.w.Debug(text)
	}
	return len(b), err
}

// reopen reopens the log file, as after its rotation, or keeps the old one on an error.
func (l *Log) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.openFile(0)
}

// openFile opens the log file with more flags, or keeps the old one on an error. Crash tracebacks go there
// too, since a detached daemon has no stderr. Symbolic links are refused: an owner of the directory other than root
// could redirect root's writes to any file. The caller holds l.mu.
func (l *Log) openFile(flags int) error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|flags, 0o640)
	if err != nil {
		return fmt.Errorf("opening log file: %w", err)
	}
	_ = debug.SetCrashOutput(f, debug.CrashOptions{}) // a convenience: it duplicates f
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file = f
	if l.rotation.Size > 0 {
		l.removeBackups()
	}
	return nil
}

func (l *Log) closeFile() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := errors.Join(debug.SetCrashOutput(nil, debug.CrashOptions{}), l.file.Close())
	l.file = nil
	return err
}

// Close closes all destinations but the console.
func (l *Log) Close() error {
	l.dropKlog()
	err := l.closeFile()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.syslog != nil {
		err = errors.Join(err, l.syslog.Close())
		l.syslog = nil
	}
	return err
}
