package daemon

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// prints is a command that prints text with its arguments, or fails without text.
func prints(name, text string, most int) Command {
	return Command{Name: name, Max: most, Run: func(args []string) (string, error) {
		if text == "" {
			return "", errors.New("standby")
		}
		return strings.Join(append([]string{text}, args...), " ") + "\n", nil
	}}
}

// A command of two roles has the output of both, or of one by its prefix. Others keep their names.
func TestCommandsOfRoles(t *testing.T) {
	all := Join(
		Role{"watcher", []Command{prints("service/show", "rows", 1), prints("pod/show", "pods", 1), prints("reconcile/show", "", 0)}},
		Role{"helper", []Command{prints("service/show", "rules", 0), prints("flows/show", "flows", 0), prints("reconcile/show", "parts", 0)}},
	)
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"service/show", nil, "# watcher\nrows\n# helper\nrules\n"},
		{"service/show", []string{"a/b"}, "# watcher\nrows a/b\n"},
		{"watcher/service/show", nil, "rows\n"},
		{"helper/service/show", nil, "rules\n"},
		{"reconcile/show", nil, "# watcher\nstandby\n# helper\nparts\n"},
		{"pod/show", nil, "pods\n"},
		{"flows/show", nil, "flows\n"},
	} {
		i := slices.IndexFunc(all, func(c Command) bool { return c.Name == tt.name })
		if i < 0 {
			t.Errorf("no command %s", tt.name)
			continue
		}
		if got, err := all[i].Run(tt.args); got != tt.want || err != nil {
			t.Errorf("%s %v prints %q, error %v, want %q", tt.name, tt.args, got, err, tt.want)
		}
	}
	if len(all) != 8 {
		t.Errorf("%d commands", len(all))
	}
	alone := Join(Role{"watcher", []Command{prints("reconcile/show", "", 0), prints("pod/show", "pods", 0)}})
	if len(alone) != 2 || alone[0].Name != "reconcile/show" {
		t.Errorf("the commands of a single role are others: %v", alone)
	}
	if _, err := Join(Role{"a", []Command{prints("x", "", 0)}}, Role{"b", []Command{prints("x", "", 0)}})[0].Run(nil); err == nil {
		t.Error("all roles failed, and the command did not")
	}
}
