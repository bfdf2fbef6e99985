package declare

import (
	"errors"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
)

// A reason for which a gateway cannot be declared down is one line of the log, until it changes.
func TestEachReasonIsLoggedOnce(t *testing.T) {
	var text strings.Builder
	log := logrus.New()
	log.SetOutput(&text)
	i := Idle{Log: logrus.NewEntry(log)}
	for _, step := range []struct {
		err   error
		lines int
	}{
		{errors.New("read tcp 127.0.0.1:4001->127.0.0.1:6640: connection reset"), 1},
		{errors.New("read tcp 127.0.0.1:4002->127.0.0.1:6640: connection reset"), 1},
		{errors.New("no answer"), 2},
		{nil, 2},
		{errors.New("no answer"), 3},
	} {
		i.report(step.err)
		if got := strings.Count(text.String(), "level=warning"); got != step.lines {
			t.Errorf("after %v: %d lines, want %d", step.err, got, step.lines)
		}
	}
}
