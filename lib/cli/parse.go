package cli

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	flags "github.com/jessevdk/go-flags"
)

// help is the output of --help or --version.
type help string

func (h help) Error() string { return string(h) }

// A parser reads one command line.
type parser struct {
	*flags.Parser
	program Program
	args    []string
	runner  Runner
	stray   []string // arguments matching no command or operand
	collect []func() // fill Program.Values
}

// parse returns the Runner chosen by args, with its options set. The error is a help, or one line.
func parse(prog Program, args []string) (Runner, error) {
	p := &parser{Parser: flags.NewNamedParser(prog.Name, flags.PassDoubleDash), program: prog}
	p.Usage = "[OPTIONS]"
	p.LongDescription = prog.Summary
	p.addOptions(prog)
	if prog.OneDash {
		args = twoDashes(args, p.shapes())
	}
	p.args = p.spellOut(args)
	p.runner, p.SubcommandsOptional = prog.Options.(Runner)
	p.UnknownOptionHandler = p.complete
	p.CommandHandler = func(c flags.Commander, rest []string) error {
		if c != nil {
			p.runner = c.(Runner)
		}
		p.stray = rest
		return nil
	}
	rest, err := p.ParseArgs(p.args)
	if err != nil {
		return nil, p.hint(p.explain(err, rest))
	}
	if len(p.stray) > 0 {
		return nil, p.hint(p.strayArgument(p.stray[0]))
	}
	for _, c := range p.collect {
		c()
	}
	return p.runner, nil
}

// hint appends the --help command to an error.
func (p *parser) hint(err error) error {
	var h help
	if errors.As(err, &h) {
		return err
	}
	name := p.Name
	for c := p.Active; c != nil; c = c.Active {
		name += " " + c.Name
	}
	return fmt.Errorf("%w (try '%s --help')", err, name)
}

// addOptions adds the program's options, --help and --version. go-flags refuses only wrong struct tags; every run
// would show that mistake.
func (p *parser) addOptions(prog Program) {
	if _, err := p.AddGroup("Options", "", prog.Options); err != nil {
		panic(fmt.Sprintf("cli: options %T: %v", prog.Options, err))
	}
	for _, g := range prog.Groups {
		p.addGroup(g)
	}
	var other struct {
		Help    func() error `short:"h" long:"help" description:"print this page"`
		Version func() error `short:"V" long:"version" description:"print the version"`
	}
	other.Help = func() error {
		var b strings.Builder
		p.WriteHelp(&b)
		return &flags.Error{Type: flags.ErrHelp, Message: b.String()}
	}
	other.Version = func() error { return &flags.Error{Type: flags.ErrHelp, Message: prog.Name + " " + prog.Version} }
	if _, err := p.AddGroup("Other options", "", &other); err != nil {
		panic(fmt.Sprintf("cli: %v", err))
	}
}

// addGroup adds options that are not in a struct, by a struct with a field for each.
func (p *parser) addGroup(g Group) {
	var fields []reflect.StructField
	for i, o := range g.Options {
		tag := fmt.Sprintf("long:%q value-name:%q description:%q", o.Name, o.Value, o.Text)
		if o.Hidden {
			tag += ` hidden:"yes"`
		}
		if o.Boolean {
			tag += ` optional:"yes" optional-value:"true"`
		}
		fields = append(fields, reflect.StructField{Name: fmt.Sprint("Option", i), Type: reflect.TypeFor[*string](), Tag: reflect.StructTag(tag)})
	}
	options := reflect.New(reflect.StructOf(fields))
	if _, err := p.AddGroup(g.Name, "", options.Interface()); err != nil {
		panic(fmt.Sprintf("cli: group %s: %v", g.Name, err))
	}
	p.collect = append(p.collect, func() {
		for i, o := range g.Options {
			if v := options.Elem().Field(i).Interface().(*string); v != nil {
				p.program.Values[o.Name] = *v
			}
		}
	})
}

// shapes returns how each long option takes its value.
func (p *parser) shapes() map[string]shape {
	known := map[string]shape{}
	for o := range p.everyOption() {
		known[o.LongName] = shapeOf(o)
	}
	return known
}

// spellOut appends the default value to repeatable options given without their optional value, such as -v. Otherwise
// go-flags would discard the values before.
func (p *parser) spellOut(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		if a == "--" {
			break
		}
		for o := range p.everyOption() {
			if collects(o) && (a == "--"+o.LongName || o.ShortName != 0 && a == "-"+string(o.ShortName)) {
				out[i] = "--" + o.LongName + "=" + o.OptionalValue[0]
			}
		}
	}
	return out
}

func collects(o *flags.Option) bool {
	return o.OptionalArgument && len(o.OptionalValue) > 0 && o.Field().Type.Kind() == reflect.Slice
}

// complete resolves an abbreviated option. go-flags calls it with the unknown name and the rest of the command line,
// and continues with the result.
func (p *parser) complete(name string, value flags.SplitArgument, rest []string) ([]string, error) {
	at := len(p.args) - len(rest) - 1
	if arg := p.args[at]; !strings.HasPrefix(arg, "--") {
		arg, _, _ = strings.Cut(arg, "=") // the value may be a secret
		return nil, fmt.Errorf("unknown option %s", arg)
	}
	var names []string
	var found *flags.Option
	for o := range p.activeOptions() {
		if strings.HasPrefix(o.LongName, name) {
			names, found = append(names, "--"+o.LongName), o
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("unknown option --%s", name)
	}
	if len(names) > 1 {
		slices.Sort(names)
		return nil, fmt.Errorf("option --%s is ambiguous: it could be %s", name, strings.Join(names, ", "))
	}
	full := "--" + found.LongName
	if v, ok := value.Value(); ok {
		full += "=" + v
	} else if collects(found) {
		full += "=" + found.OptionalValue[0]
	}
	p.args[at] = full
	return p.args[at:], nil
}

// explain turns an error of go-flags into ours; rest is the command line after the error.
func (p *parser) explain(err error, rest []string) error {
	var fe *flags.Error
	if !errors.As(err, &fe) {
		return err
	}
	switch fe.Type {
	case flags.ErrHelp:
		return p.help(fe.Message)
	case flags.ErrRequired:
		if missing := p.missing(); len(missing) > 0 {
			return fmt.Errorf("missing required option %s", strings.Join(missing, ", "))
		}
	case flags.ErrCommandRequired:
		return fmt.Errorf("no command given; it can be %s", strings.Join(p.commandNames(), ", "))
	case flags.ErrUnknownCommand:
		return p.unknownCommand(rest)
	}
	return errors.New(oneLine(fe.Message))
}

// missing returns the required options not given.
func (p *parser) missing() []string {
	var names []string
	for o := range p.activeOptions() {
		if o.Required && !o.IsSet() {
			names = append(names, optionName(o))
		}
	}
	return names
}

func (p *parser) commandNames() []string {
	var names []string
	for _, c := range p.active().Commands() {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}

// active is the chosen command, or the program itself.
func (p *parser) active() *flags.Command {
	c := p.Command
	for c.Active != nil {
		c = c.Active
	}
	return c
}

// unknownCommand names the unknown command; rest is the command line from there on.
func (p *parser) unknownCommand(rest []string) error {
	at := len(p.args) - len(rest)
	if at > 0 {
		if o := p.valueless(p.args[at-1]); o != nil {
			return needsEquals(o, rest[0])
		}
	}
	return fmt.Errorf("unknown command %q; it can be %s", rest[0], strings.Join(p.commandNames(), ", "))
}

// strayArgument names an unexpected argument.
func (p *parser) strayArgument(word string) error {
	for i, a := range p.args[:len(p.args)-1] {
		if o := p.valueless(a); o != nil && p.args[i+1] == word {
			return needsEquals(o, word)
		}
	}
	return fmt.Errorf("unexpected argument %q", word)
}

// valueless returns the option arg if its optional value was given without "=", as in "--pidfile /run/x.pid",
// otherwise nil.
func (p *parser) valueless(arg string) *flags.Option {
	for o := range p.everyOption() {
		if o.OptionalArgument && (arg == "--"+o.LongName || arg == "--"+o.LongName+"="+strings.Join(o.OptionalValue, "") && collects(o)) {
			return o
		}
	}
	return nil
}

func needsEquals(o *flags.Option, word string) error {
	return fmt.Errorf("unexpected argument %q: the value of %s needs \"=\", as in --%s=%s", word, optionName(o), o.LongName, word)
}

func optionName(o *flags.Option) string {
	if o.LongName != "" {
		return "--" + o.LongName
	}
	return "-" + string(o.ShortName)
}

// activeOptions returns the options of the program and of the chosen command.
func (p *parser) activeOptions() iter.Seq[*flags.Option] {
	return func(yield func(*flags.Option) bool) {
		for c := p.Command; c != nil; c = c.Active {
			if !eachOption(c.Group, yield) {
				return
			}
		}
	}
}

// everyOption returns the options of the program and of all commands.
func (p *parser) everyOption() iter.Seq[*flags.Option] {
	return func(yield func(*flags.Option) bool) { commandOptions(p.Command, yield) }
}

func commandOptions(c *flags.Command, yield func(*flags.Option) bool) bool {
	if !eachOption(c.Group, yield) {
		return false
	}
	for _, sub := range c.Commands() {
		if !commandOptions(sub, yield) {
			return false
		}
	}
	return true
}

func eachOption(g *flags.Group, yield func(*flags.Option) bool) bool {
	for _, o := range g.Options() {
		if !yield(o) {
			return false
		}
	}
	for _, sub := range g.Groups() {
		if !eachOption(sub, yield) {
			return false
		}
	}
	return true
}

// exitStatuses ends every --help.
const exitStatuses = `Exit status:
  0  done
  1  could not be done
  2  wrong command line
`

// help turns go-flags' text into the output of --help or --version.
func (p *parser) help(text string) help {
	if !strings.HasPrefix(text, "Usage:") {
		return help(text)
	}
	example := p.program.Example
	if c := p.active(); c != p.Command {
		example = commandExample(reflect.ValueOf(p.program.Options), c.Name)
	}
	var b strings.Builder
	b.WriteString(strings.TrimRight(text, "\n") + "\n\n")
	if example = strings.Trim(example, "\n"); example != "" {
		b.WriteString("Example:\n")
		for l := range strings.SplitSeq(example, "\n") {
			b.WriteString(strings.TrimRight("  "+strings.TrimSpace(l), " ") + "\n")
		}
		b.WriteString("\n")
	}
	b.WriteString(exitStatuses)
	return help(b.String())
}

// commandExample returns the result of the command's Example method. go-flags does not export the command's struct,
// so it is looked up by its tag.
func commandExample(v reflect.Value, name string) string {
	v = reflect.Indirect(v)
	if v.Kind() != reflect.Struct {
		return ""
	}
	for field, value := range v.Fields() {
		if !field.IsExported() {
			continue
		}
		if field.Tag.Get("command") == name && value.CanAddr() {
			if e, ok := value.Addr().Interface().(exampler); ok {
				return e.Example()
			}
			if e, ok := value.Interface().(exampler); ok { // a pointer field
				return e.Example()
			}
		}
		if s := commandExample(value, name); s != "" {
			return s
		}
	}
	return ""
}

// oneLine rewords messages of go-flags in our style.
func oneLine(s string) string {
	s = strings.NewReplacer("`", "", "'", "", "\n", " ", " flag ", " option ").Replace(s)
	return strings.ToLower(s[:1]) + s[1:]
}
