package cli

import (
	"strings"
	"testing"
)

// No command line makes the parser panic, and each error is one line.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"minion-init --node-name=n", "--pidfile /x", "-v -vfile:info --verb", "--", "--=x", "-", "- --n x", "nics-to-bridge -- a",
		"master-init --fault=x y", "-xV", "--help", "minion-init --count=x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "\n\r") {
			return
		}
		_, err := parse(Program{Name: "p", Options: &suite{}}, strings.Split(line, " "))
		if _, ok := err.(help); err != nil && !ok && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", line, err)
		}
	})
}
