package docs_test

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"ovn-k8s/docs"
	"ovn-k8s/lib/config"
	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/gateway"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/ovnkube"
	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/vlog"
	"ovn-k8s/lib/watcher"
)

// root is the repository's root directory, relative to this package.
const root = "../.."

// A page is one file of the documentation.
type page struct{ name, text string }

// pages reads README.md, CONTRIBUTING.md and all files of package docs.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	for _, name := range []string{"README.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page{name, string(text)})
	}
	err := fs.WalkDir(docs.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(docs.Files, name)
		all = append(all, page{"docs/" + name, string(text)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// span matches a code span.
var span = regexp.MustCompile("`([^`\n]+)`")

// spans returns the code spans of a page.
func (p page) spans() []string {
	var all []string
	for _, m := range span.FindAllStringSubmatch(docs.Prose(p.text), -1) {
		all = append(all, m[1])
	}
	return all
}

// commands returns the command lines of a page: lines of its blocks, lines of
// units, and code spans with arguments.
func (p page) commands() []string {
	var text []string
	for _, b := range docs.Blocks(p.text) {
		text = append(text, strings.ReplaceAll(b.Text, "\\\n", " "))
	}
	for _, s := range p.spans() {
		if strings.Contains(s, " ") {
			text = append(text, s)
		}
	}
	if strings.HasSuffix(p.name, ".service") {
		text = append(text, strings.ReplaceAll(p.text, "ExecStart=", ""))
	}
	var lines []string
	for _, t := range text {
		lines = append(lines, strings.Split(t, "\n")...)
	}
	return lines
}

// programs builds the project's programs once and returns their directory.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "docs")
	if err != nil {
		return "", err
	}
	mains, err := filepath.Glob(filepath.Join(root, "ovn*", "main.go"))
	if err != nil {
		return "", err
	}
	args := []string{"build", "-trimpath", "-o", dir + "/"}
	for _, m := range mains {
		args = append(args, "./"+filepath.Base(filepath.Dir(m)))
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env, cmd.Stderr = root, append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	return dir, cmd.Run()
})

func TestMain(m *testing.M) {
	status := m.Run()
	if dir, _ := programs(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(status)
}

// help returns the --help output of a program or of one of its commands.
func help(t *testing.T, program string, command ...string) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatalf("building the programs: %v", err)
	}
	out, err := exec.Command(filepath.Join(dir, program), append(command, "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v --help: %v: %s", program, command, err, out)
	}
	return string(out)
}

var (
	option  = regexp.MustCompile(`--[a-z][a-z0-9-]*`)
	ours    = regexp.MustCompile(`^(?:/usr/local/bin/)?(ovnkube|ovn-k8s-[a-z-]+) (.*)$`)
	verbose = regexp.MustCompile(`^-v(\S+)$`)
)

// TestCommands checks that the project's programs accept every command line of
// theirs in the documentation.
func TestCommands(t *testing.T) {
	checked := 0
	for _, p := range pages(t) {
		for _, line := range p.commands() {
			m := ours.FindStringSubmatch(strings.TrimSpace(line))
			if m == nil {
				continue
			}
			checked++
			if problem := parse(t, m[1], strings.Fields(m[2])); problem != "" {
				t.Errorf("%s: %q: %s", p.name, line, problem)
			}
		}
	}
	if checked < 10 {
		t.Errorf("found only %d command lines in the documentation", checked)
	}
}

// parse returns the error in a program's arguments, or "".
func parse(t *testing.T, program string, args []string) string {
	if !exists(program) {
		return "there is no such program"
	}
	var command []string
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		if !strings.Contains(help(t, program), "  "+args[0]+" ") {
			return "there is no command " + args[0]
		}
		command, args = args[:1], args[1:]
	}
	known := option.FindAllString(help(t, program, command...), -1)
	for _, a := range args {
		name, _, _ := strings.Cut(a, "=")
		if m := verbose.FindStringSubmatch(a); m != nil {
			if _, err := vlog.ParseSpec(m[1]); err != nil {
				return err.Error()
			}
			continue
		}
		if !strings.HasPrefix(a, "-") && strings.Contains(help(t, program, command...), "arguments]") {
			continue
		}
		if variable := strings.HasPrefix(a, "$"); !variable && !slices.Contains(known, name) {
			return "there is no option " + name
		}
	}
	return ""
}

var appctl = regexp.MustCompile(`^ovs-appctl -t (ovnkube|ovn-k8s-[a-z-]+) (\S+)`)

// TestControlCommands compares the documentation with the daemons' control
// commands: every documented command exists, and every command is documented.
func TestControlCommands(t *testing.T) {
	log, err := vlog.New("docs", vlog.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	known, undocumented := map[string]bool{}, map[string]bool{}
	for program, own := range map[string][]daemon.Command{
		watcher.Program: new(watcher.Watcher).Commands(),
		gateway.Program: new(gateway.Helper).Commands(),
		ovnkube.Program: ovnkube.New(ovnkube.Options{Flags: map[string]string{"init-master": "n1", "init-node": "n1"}}).Commands(),
	} {
		for _, name := range []string{"exit", "version", "list-commands", "help"} {
			known[program+" "+name] = true
		}
		for _, c := range log.Commands() {
			known[program+" "+c.Name] = true
		}
		for _, c := range own {
			known[program+" "+c.Name] = true
			if c.Usage != daemon.Hidden && program != ovnkube.Program { // its commands are those of the others
				undocumented[program+" "+c.Name] = true
			}
		}
	}
	for _, p := range pages(t) {
		for _, line := range p.commands() {
			m := appctl.FindStringSubmatch(strings.TrimSpace(line))
			if m == nil {
				continue
			}
			command := m[1] + " " + m[2]
			delete(undocumented, command)
			if !known[command] {
				t.Errorf("%s: %q: there is no such command", p.name, line)
			}
		}
	}
	for _, c := range slices.Sorted(maps.Keys(undocumented)) {
		t.Errorf("no page shows %s", c)
	}
}

// TestYAML decodes all YAML as Kubernetes objects. An unknown field is an error.
func TestYAML(t *testing.T) {
	for _, p := range pages(t) {
		texts := []string{}
		if path.Ext(p.name) == ".yaml" {
			texts = append(texts, p.text)
		}
		for _, b := range docs.Blocks(p.text) {
			if b.Language == "yaml" {
				texts = append(texts, b.Text)
			}
		}
		for _, text := range texts {
			for doc := range strings.SplitSeq(text, "\n---\n") {
				load(t, p.name, doc)
			}
		}
	}
}

// load decodes one document strictly.
func load(t *testing.T, name, doc string) any {
	t.Helper()
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	text, err := yaml.YAMLToJSONStrict([]byte(doc))
	if err != nil {
		t.Errorf("%s: %v in:\n%s", name, err, doc)
		return nil
	}
	obj, _, err := strict.Decode(text, nil, nil)
	if err != nil {
		t.Errorf("%s: %v in:\n%s", name, err, doc)
	}
	return obj
}

// TestLeastPrivilege checks that the manifest grants no changes to pods and nodes,
// and no wildcard.
func TestLeastPrivilege(t *testing.T) {
	text, err := fs.ReadFile(docs.Files, "rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var rules []rbacv1.PolicyRule
		switch o := load(t, "docs/rbac.yaml", doc).(type) {
		case *rbacv1.ClusterRole:
			rules = o.Rules
		case *rbacv1.Role:
			rules = o.Rules
		}
		for _, r := range rules {
			if slices.Contains(slices.Concat(r.Verbs, r.Resources, r.APIGroups), "*") {
				t.Errorf("a rule allows everything: %v", r)
			}
			writes := slices.ContainsFunc(r.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) })
			if writes && (slices.Contains(r.Resources, "pods") || slices.Contains(r.Resources, "nodes")) {
				t.Errorf("a rule allows to change pods or nodes: %v", r)
			}
		}
	}
}

// TestRightsForKinds checks that the watcher may list and watch each kind of objects of the table.
func TestRightsForKinds(t *testing.T) {
	text, err := fs.ReadFile(docs.Files, "rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	granted := map[string]bool{}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		role, ok := load(t, "docs/rbac.yaml", doc).(*rbacv1.ClusterRole)
		if !ok || role.Name != "ovn-k8s-watcher" {
			continue
		}
		for _, r := range role.Rules {
			for _, resource := range r.Resources {
				granted[r.APIGroups[0]+"/"+resource] = slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch")
			}
		}
	}
	for _, k := range kube.Kinds() {
		gvk, err := k.Version()
		if err != nil {
			t.Fatal(err)
		}
		if !granted[gvk.Group+"/"+k.Name] {
			t.Errorf("docs/rbac.yaml does not let the watcher list and watch %s", k.Name)
		}
	}
}

func TestConfigurationTable(t *testing.T) {
	text, err := fs.ReadFile(docs.Files, "configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), config.Markdown(config.Settings())) {
		t.Errorf("docs/configuration.md does not have this table:\n%s", config.Markdown(config.Settings()))
	}
}

func TestTableOfOvnkube(t *testing.T) {
	text, err := fs.ReadFile(docs.Files, "ovnkube.md")
	if err != nil {
		t.Fatal(err)
	}
	if table := config.Markdown(options.Settings()); !strings.Contains(string(text), table) {
		t.Errorf("docs/ovnkube.md does not have this table:\n%s", table)
	}
}

var (
	link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	// file matches a path in this repository.
	file   = regexp.MustCompile(`^(?:lib|test|docs|ovn-k8s-[a-z-]+)(?:/[\w.-]+)+$`)
	target = regexp.MustCompile(`^make((?: [a-z-]+)+)`)
	run    = regexp.MustCompile(`-run (Test\w+)`)
)

// TestNames checks the names in the pages: links, files, targets of make and tests
// must exist.
func TestNames(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(p.text, -1) {
			if to := path.Join(path.Dir(p.name), m[1]); !exists(to) {
				t.Errorf("%s links to %s, which does not exist", p.name, to)
			}
		}
		for _, s := range p.spans() {
			if file.MatchString(s) && !exists(s) {
				t.Errorf("%s speaks of %s, which does not exist", p.name, s)
			}
		}
		for _, line := range slices.Concat(p.commands(), p.spans()) {
			m := target.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			for name := range strings.FieldsSeq(m[1]) {
				if !regexp.MustCompile(`(?m)^` + name + `:`).Match(makefile) {
					t.Errorf("%s: %q: make has no target %s", p.name, line, name)
				}
			}
		}
		for _, m := range run.FindAllStringSubmatch(p.text, -1) {
			if !hasTest(t, m[1]) {
				t.Errorf("%s speaks of %s, which does not exist", p.name, m[1])
			}
		}
	}
}

// hasTest reports whether a package under lib contains the test.
func hasTest(t *testing.T, name string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(filepath.Join(root, "lib"), func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		found = found || strings.Contains(string(text), "\nfunc "+name+"(")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, name))
	return err == nil
}
