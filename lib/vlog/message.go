package vlog

import (
	"fmt"
	"log/syslog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/sirupsen/logrus"
)

// moduleKey is the field for the module's name. It is printed separately.
const moduleKey = "module"

// message is an entry's text and fields on one line.
func message(e *logrus.Entry) string {
	var b strings.Builder
	b.WriteString(oneLine(strings.TrimRight(e.Message, "\n")))
	for _, k := range slices.Sorted(maps.Keys(e.Data)) {
		if k == moduleKey {
			continue
		}
		b.WriteByte(' ')
		b.WriteString(oneLine(k))
		b.WriteByte('=')
		b.WriteString(value(k, e.Data[k]))
	}
	return hideTokens(b.String())
}

// secretKeys are fields with values never to be logged.
var secretKeys = map[string]bool{"token": true, "k8s-api-token": true, "password": true, "authorization": true}

func value(key string, v any) string {
	if secretKeys[strings.ToLower(key)] {
		return "<hidden>"
	}
	s := text(v)
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r == ' ' || r == '"' || r == '=' || !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

func text(v any) string {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case error, fmt.Stringer:
		return fmt.Sprint(v) // %+v makes some errors print their stack
	}
	return fmt.Sprintf("%+v", v)
}

// oneLine escapes characters that break a line or a terminal.
func oneLine(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == unicode.ReplacementChar && s[i] != "\uFFFD"[0]: // a byte that is not UTF-8
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

var bearer = regexp.MustCompile(`(?i)(bearer )[^\s"\\]+`)

// hideTokens masks the token of an Authorization header anywhere in s, as in requests dumped by client-go.
func hideTokens(s string) string {
	if !strings.Contains(s, "earer ") {
		return s
	}
	return bearer.ReplaceAllString(s, "${1}<hidden>")
}

// priority is the level's severity in syslog(3).
func (l Level) priority() syslog.Priority {
	switch l {
	case Emer:
		return syslog.LOG_ALERT // LOG_EMERG would go to every terminal
	case Err:
		return syslog.LOG_ERR
	case Warn:
		return syslog.LOG_WARNING
	case Info:
		return syslog.LOG_NOTICE
	}
	return syslog.LOG_DEBUG
}
