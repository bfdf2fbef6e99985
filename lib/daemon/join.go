package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Role is a part of a process with commands of its own.
type Role struct {
	Name     string // short: a prefix of commands and a heading
	Commands []Command
}

// Join returns the commands of a process with several roles. A command that several roles have, such as
// reconcile/show, prints the output of each under the name of the role; ROLE/reconcile/show is that of one role. All
// other commands keep their names. The commands of a single role stay as they are.
func Join(roles ...Role) (all []Command) {
	having := map[string][]Role{} // with this one command each
	var order []string
	for _, r := range roles {
		for _, c := range r.Commands {
			if having[c.Name] == nil {
				order = append(order, c.Name)
			}
			having[c.Name] = append(having[c.Name], Role{r.Name, []Command{c}})
		}
	}
	for _, name := range order {
		of := having[name]
		if len(of) == 1 {
			all = append(all, of[0].Commands[0])
			continue
		}
		all = append(all, joined(name, of))
		for _, r := range of {
			c := r.Commands[0]
			c.Name = r.Name + "/" + name
			all = append(all, c)
		}
	}
	return all
}

// joined is the command name of several roles. Arguments are for the roles that take as many.
func joined(name string, of []Role) Command {
	out := of[0].Commands[0]
	for _, r := range of {
		out.Min, out.Max = min(out.Min, r.Commands[0].Min), max(out.Max, r.Commands[0].Max)
		if r.Commands[0].Max == out.Max {
			out.Usage = r.Commands[0].Usage
		}
	}
	out.Run = func(args []string) (string, error) {
		var b strings.Builder
		var failed []error
		able := slices.DeleteFunc(slices.Clone(of), func(r Role) bool {
			return len(args) < r.Commands[0].Min || len(args) > r.Commands[0].Max
		})
		for _, r := range able {
			text, err := r.Commands[0].Run(args)
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", r.Name, err))
				text = err.Error() + "\n"
			}
			fmt.Fprintf(&b, "# %s\n%s", r.Name, text)
		}
		if len(failed) == len(able) {
			return "", errors.Join(failed...)
		}
		return b.String(), nil
	}
	return out
}
