package cli

import (
	"reflect"
	"strconv"
	"strings"

	flags "github.com/jessevdk/go-flags"
)

// A shape is the way in which an option takes a value.
type shape int

const (
	valued   shape = iota // always
	optional              // perhaps, as --pidfile
	truth                 // a boolean of an Option: none, or "=" and a value
	boolean               // a boolean of a struct: never
	repeated              // perhaps, and many times, as --verbose
)

func shapeOf(o *flags.Option) shape {
	kind := o.Field().Type.Kind()
	switch {
	case o.OptionalArgument && kind == reflect.Pointer:
		return truth
	case o.OptionalArgument && kind == reflect.Slice:
		return repeated
	case o.OptionalArgument:
		return optional
	case kind == reflect.Bool || kind == reflect.Func:
		return boolean
	}
	return valued
}

// twoDashes rewrites a command line in the style of Go's package flag for go-flags: -name, -name=value and -name value
// become --name and --name=value. Booleans may have =true or =false. Words that are not in known, such as short options,
// stay as they are.
func twoDashes(args []string, known map[string]shape) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return append(out, args[i:]...)
		}
		name, value, hasValue := longOption(args[i])
		kind, ok := known[name]
		next := ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		switch {
		case !ok:
			out = append(out, args[i])
		case hasValue && kind == boolean:
			out = append(out, plainBoolean(name, value)...)
		case hasValue:
			out = append(out, "--"+name+"="+value)
		case i+1 < len(args) && takes(kind, next, known):
			out = append(out, "--"+name+"="+next)
			i++
		case kind == valued: // go-flags finds its value missing
			return append(append(out, "--"+name), args[i+1:]...)
		default:
			out = append(out, "--"+name)
		}
	}
	return out
}

// longOption takes an argument with one or two dashes apart.
func longOption(arg string) (name, value string, hasValue bool) {
	name, ok := strings.CutPrefix(arg, "-")
	if !ok {
		return "", "", false
	}
	return strings.Cut(strings.TrimPrefix(name, "-"), "=")
}

// plainBoolean writes a boolean with a value for go-flags, which takes none; it refuses other values.
func plainBoolean(name, value string) []string {
	switch on, err := strconv.ParseBool(value); {
	case err != nil:
		return []string{"--" + name + "=" + value}
	case on:
		return []string{"--" + name}
	}
	return nil
}

// takes reports whether the word after an option is its value. The value of an option that needs one may begin with a
// dash, but is no other option: that one's value is missing.
func takes(kind shape, next string, known map[string]shape) bool {
	if kind == optional {
		return !strings.HasPrefix(next, "-")
	}
	name, _, _ := longOption(next)
	_, isOption := known[name]
	return kind == valued && !isOption && next != "--"
}
