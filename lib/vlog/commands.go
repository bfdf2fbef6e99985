package vlog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Command is a command for a control socket. It is identical to the daemon's type, so that neither package imports
// the other.
type Command = struct {
	Name, Usage string
	Min, Max    int // number of arguments
	Run         func(args []string) (string, error)
}

// manyArgs stands for any number of arguments.
const manyArgs = 1 << 16

// Commands are the log's commands for a daemon's control socket: vlog/list,
// vlog/list-pattern, vlog/set, vlog/reopen and vlog/close, as in ovs-appctl(8).
func (l *Log) Commands() []Command {
	return []Command{
		{Name: "vlog/list", Run: l.list},
		{Name: "vlog/list-pattern", Run: l.listPattern},
		{Name: "vlog/set", Usage: "{spec | PATTERN:destination:pattern}", Max: manyArgs, Run: l.set},
		{Name: "vlog/reopen", Run: l.reopenCommand},
		{Name: "vlog/close", Run: func([]string) (string, error) { return "", l.closeFile() }},
	}
}

func (l *Log) list([]string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	b.WriteString("                 console    syslog    file\n")
	b.WriteString("                 -------    ------    ------\n")
	for _, key := range slices.Sorted(maps.Keys(l.modules)) {
		m := l.modules[key]
		fmt.Fprintf(&b, "%-16s  %4s       %4s       %4s\n", m.name, m.levels[Console], m.levels[Syslog], m.levels[File])
	}
	return b.String(), nil
}

func (l *Log) listPattern([]string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	b.WriteString("destination  pattern\n-----------  -------\n")
	for i := range dests {
		fmt.Fprintf(&b, "%-11s  %s\n", Dest(i), l.text[i])
	}
	return b.String(), nil
}

// set applies all of its arguments, or none.
func (l *Log) set(args []string) (string, error) {
	if len(args) == 0 {
		args = []string{"dbg"}
	}
	specs, err := parseArgs(args)
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range specs {
		if s.Module != "" && l.modules[strings.ToLower(s.Module)] == nil {
			return "", fmt.Errorf("no destination, level, or module %q", s.Module)
		}
	}
	for _, s := range specs {
		if err := l.apply(s); err != nil {
			return "", err
		}
	}
	return "", nil
}

func parseArgs(args []string) ([]Spec, error) {
	var specs []Spec
	for _, a := range args {
		s, err := ParseSpec(a)
		if err != nil {
			return nil, err
		}
		specs = append(specs, s)
	}
	return specs, nil
}

func (l *Log) reopenCommand([]string) (string, error) {
	if l.path == "" {
		//lint:ignore ST1005 Open vSwitch says so
		return "", errors.New("Logging to file not configured")
	}
	if err := l.reopen(); err != nil {
		return "", err
	}
	l.Module("vlog").Infof("opened log file %s", l.path)
	return "", nil
}
