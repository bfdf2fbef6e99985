package vlog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sirupsen/logrus"
)

// A Level is an Open vSwitch log level. Lines of this level or more severe ones are logged.
type Level int

// The levels, as in ovs-appctl(8), most severe first.
const (
	Off Level = iota // nothing is logged
	Emer
	Err
	Warn
	Info
	Dbg
)

var levelNames = [...]string{"OFF", "EMER", "ERR", "WARN", "INFO", "DBG"}

// String is the level as Open vSwitch prints it, e.g. "WARN".
func (l Level) String() string { return levelNames[l] }

// levelOf is the level of a logrus line. Open vSwitch has one level for debug and trace, and one for fatal and panic.
func levelOf(l logrus.Level) Level {
	switch l {
	case logrus.PanicLevel, logrus.FatalLevel:
		return Emer
	case logrus.ErrorLevel:
		return Err
	case logrus.WarnLevel:
		return Warn
	case logrus.InfoLevel:
		return Info
	}
	return Dbg
}

// logrusLevels is the least severe logrus level of each Level.
var logrusLevels = [...]logrus.Level{
	logrus.PanicLevel, logrus.FatalLevel, logrus.ErrorLevel, logrus.WarnLevel, logrus.InfoLevel, finest,
}

// finest exceeds the finest level in use: an adapter from logr to logrus maps verbosities of libovsdb and client-go
// to levels beyond trace.
const finest = logrus.TraceLevel + 10

// A Dest is a destination of log lines.
type Dest int

// The destinations, in the order of vlog/list.
const (
	Console Dest = iota
	Syslog
	File
	AnyDest // all of them
	dests   = int(AnyDest)
)

var destNames = [...]string{"console", "syslog", "file", "any"}

// String is the destination as in a Spec, e.g. "console".
func (d Dest) String() string { return destNames[d] }

// A Spec is one change of levels, or of a pattern.
type Spec struct {
	Module   string // "" means every module
	Dest     Dest
	Level    Level
	Explicit bool   // the level was written, not assumed to be dbg
	Pattern  string // if not "", Dest's new pattern; Module and Level are unused
}

// ParseSpec parses an argument of -v or vlog/set, as in ovs-appctl(8): words for a module, a destination and a level,
// at most one of each, in any order and case, separated by colons, commas or spaces. The level defaults to dbg. "any"
// is accepted and means nothing. The other form is "pattern:DEST:PATTERN".
//
// A word that is neither a destination nor a level is taken for a module; only a Log knows whether it exists.
func ParseSpec(s string) (Spec, error) {
	if rest, ok := cutPrefixFold(s, "pattern:"); ok {
		return parsePatternSpec(rest)
	}
	spec := Spec{Dest: AnyDest, Level: Dbg}
	for _, w := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(":, \t\r\n", r) }) {
		if err := spec.add(w); err != nil {
			return Spec{}, err
		}
	}
	return spec, nil
}

func (s *Spec) add(word string) error {
	if strings.EqualFold(word, "any") {
		return nil
	}
	if l, ok := indexFold(levelNames[:], word); ok {
		if s.Explicit {
			return errors.New("cannot specify multiple levels")
		}
		s.Level, s.Explicit = Level(l), true
		return nil
	}
	if d, ok := indexFold(destNames[:dests], word); ok {
		if s.Dest != AnyDest {
			return errors.New("cannot specify multiple destinations")
		}
		s.Dest = Dest(d)
		return nil
	}
	if s.Module != "" {
		return fmt.Errorf("no destination, level, or module %q", word)
	}
	s.Module = word
	return nil
}

func parsePatternSpec(s string) (Spec, error) {
	word, pat, ok := strings.Cut(s, ":")
	if word == "" {
		return Spec{}, errors.New("missing destination")
	}
	d, known := indexFold(destNames[:], word)
	if !known {
		return Spec{}, fmt.Errorf("unknown destination %q (console, syslog, file or any)", word)
	}
	if !ok || pat == "" {
		return Spec{}, errors.New("missing pattern")
	}
	if _, err := parsePattern(pat); err != nil {
		return Spec{}, err
	}
	return Spec{Dest: Dest(d), Pattern: pat}, nil
}

func indexFold(list []string, word string) (int, bool) {
	for i, s := range list {
		if strings.EqualFold(s, word) {
			return i, true
		}
	}
	return 0, false
}

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}
