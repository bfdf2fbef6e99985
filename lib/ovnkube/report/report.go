// Package report makes lines of a log from what lib/nicbridge prints.
package report

import (
	"bytes"
	"strings"

	"github.com/sirupsen/logrus"
)

// Lines hands each line of text written to it to Line, without the program's name.
type Lines struct {
	Line func(string)
	rest bytes.Buffer
}

// Write implements io.Writer.
func (l *Lines) Write(text []byte) (int, error) {
	l.rest.Write(text)
	for {
		line, err := l.rest.ReadString('\n')
		if err != nil {
			l.rest.Reset()
			l.rest.WriteString(line)
			return len(text), nil
		}
		line = strings.TrimPrefix(strings.TrimSpace(line), "ovn-k8s-util: ")
		l.Line(strings.TrimPrefix(line, "warning: "))
	}
}

// Once returns a function to log each warning once.
func Once(log *logrus.Entry) func(string) {
	logged := map[string]bool{}
	return func(text string) {
		if !logged[text] {
			logged[text] = true
			log.Warn(text)
		}
	}
}

// Advice returns a function to log the advice of nicbridge.Move: a line for each thing to do, with its commands. The lines of a
// configuration follow, as they are.
func Advice(log *logrus.Entry) func(string) {
	return func(text string) {
		for _, line := range things(text) {
			log.Warn(line)
		}
	}
}

// things splits an advice: commands join the line before them.
func things(text string) (lines []string) {
	commands := false // follow
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		what, isThing := strings.CutPrefix(line, "# ")
		switch last := len(lines) - 1; {
		case isThing && strings.HasSuffix(what, "un:"): // "Run:", "Then run:"
			lines, commands = append(lines, what), true
		case isThing && (strings.HasSuffix(what, ":") || strings.HasSuffix(what, ".")):
			lines, commands = append(lines, what), false
		case commands && strings.HasSuffix(lines[last], "un:"):
			lines[last] += " " + line
		case commands:
			lines[last] += "; " + line
		default:
			lines = append(lines, "    "+line)
		}
	}
	return lines
}
