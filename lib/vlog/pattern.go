package vlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Default patterns. syslog adds the time and the program by itself.
const (
	DefaultPattern = "%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c|%p|%m"
	syslogPattern  = "%05N|%c|%p|%m"
)

// maxWidth bounds the field width, which may come from untrusted input.
const maxWidth = 256

// A line is the input of a pattern.
type line struct {
	time    time.Time
	seq     int64
	module  string
	level   Level
	message string
	program *program
}

// program holds the values common to all lines.
type program struct {
	name  string
	host  string
	pid   int
	start time.Time
}

// A pattern is a parsed log pattern: literal text and escapes.
type pattern []piece

type piece struct {
	literal   string
	escape    byte   // 0 for a literal
	format    string // of %d and %D
	width     int
	left, pad bool // "-" and "0"
}

// parsePattern reads a pattern in the language of ovs-appctl(8): %A %B %c %d
// %d{FORMAT} %D %D{FORMAT} %E %m %N %n %p %P %r %t %T %%, each with an optional
// "-", "0" and field width.
func parsePattern(s string) (pattern, error) {
	var p pattern
	for s != "" {
		lit, rest, found := strings.Cut(s, "%")
		if lit != "" {
			p = append(p, piece{literal: lit})
		}
		if !found {
			break
		}
		var pc piece
		var err error
		if pc, s, err = parsePiece(rest); err != nil {
			return nil, err
		}
		p = append(p, pc)
	}
	return p, nil
}

func parsePiece(s string) (pc piece, rest string, err error) {
	s, pc.left = strings.CutPrefix(s, "-")
	s, pc.pad = strings.CutPrefix(s, "0")
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	if n > 0 {
		if pc.width, err = strconv.Atoi(s[:n]); err != nil || pc.width > maxWidth {
			return pc, "", fmt.Errorf("field width %s in pattern is more than %d", s[:n], maxWidth)
		}
	}
	s = s[n:]
	if s == "" {
		return pc, "", errors.New("pattern ends inside a % escape")
	}
	if !strings.Contains("ABcdDEmNnpPrtT%", s[:1]) {
		r, _ := utf8.DecodeRuneInString(s)
		return pc, "", fmt.Errorf("unknown escape %%%c in pattern", r)
	}
	pc.escape, s = s[0], s[1:]
	if pc.escape != 'd' && pc.escape != 'D' {
		return pc, s, nil
	}
	pc.format = "%Y-%m-%d %H:%M:%S"
	if after, ok := strings.CutPrefix(s, "{"); ok {
		if pc.format, s, ok = strings.Cut(after, "}"); !ok {
			return pc, "", fmt.Errorf("missing } in pattern")
		}
	}
	return pc, s, nil
}

// write prints ln and a newline.
func (p pattern) write(w io.Writer, ln line) error {
	var b bytes.Buffer
	for _, pc := range p {
		if pc.escape == 0 {
			b.WriteString(pc.literal)
			continue
		}
		pc.pads(&b, pc.expand(ln))
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

func (pc piece) pads(b *bytes.Buffer, s string) {
	fill := " "
	if pc.pad {
		fill = "0"
	}
	gap := strings.Repeat(fill, max(0, pc.width-utf8.RuneCountInString(s)))
	if pc.left {
		b.WriteString(s + gap)
		return
	}
	b.WriteString(gap + s)
}

func (pc piece) expand(ln line) string {
	switch pc.escape {
	case 'A':
		return ln.program.name
	case 'B':
		return strconv.Itoa(3*8 + int(ln.level.priority())) // RFC 5424 section 6.2.1, facility daemon
	case 'c':
		return ln.module
	case 'd':
		return strftime(pc.format, ln.time.Local())
	case 'D':
		return strftime(pc.format, ln.time.UTC())
	case 'E':
		return ln.program.host
	case 'm':
		return ln.message
	case 'N':
		return strconv.FormatInt(ln.seq, 10)
	case 'n':
		return "\n"
	case 'p':
		return ln.level.String()
	case 'P':
		return strconv.Itoa(ln.program.pid)
	case 'r':
		return strconv.FormatInt(ln.time.Sub(ln.program.start).Milliseconds(), 10)
	case 't':
		return "main" // Go threads have no names
	case 'T':
		return ""
	}
	return "%"
}

// layouts are the conversions of strftime(3) in Go's time layouts.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'd': "02", 'e': "_2", 'm': "01",
	'y': "06", 'Y': "2006", 'j': "002", 'H': "15", 'I': "03", 'M': "04", 'p': "PM", 'S': "05", 'Z': "MST", 'z': "-0700",
	'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04", 'c': "Mon Jan _2 15:04:05 2006",
}

// strftime formats t; each "#" is one digit of the second's fraction, as in Open vSwitch. Unknown conversions are
// copied.
func strftime(format string, t time.Time) string {
	var b strings.Builder
	frac := fmt.Sprintf("%09d", t.Nanosecond())
	for i := 0; i < len(format); i++ {
		c := format[i]
		if c == '#' {
			if frac == "" {
				frac = "0"
			}
			b.WriteByte(frac[0])
			frac = frac[1:]
			continue
		}
		if c != '%' || i+1 == len(format) {
			b.WriteByte(c)
			continue
		}
		i++
		layout, ok := layouts[format[i]]
		switch {
		case ok:
			b.WriteString(t.Format(layout))
		case format[i] == '%':
			b.WriteByte('%')
		case format[i] == 's':
			b.WriteString(strconv.FormatInt(t.Unix(), 10))
		default:
			b.WriteString(format[i-1 : i+1])
		}
	}
	return b.String()
}
