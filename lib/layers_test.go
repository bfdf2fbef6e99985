package lib_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "ovn-k8s/"

// layers, lowest first. A package may import its own layer and lower ones. A package below a listed one belongs to
// the same layer. A new package under lib needs a place here and a line in doc.go.
var layers = [][]string{
	vocabulary: {"lib/names", "lib/ipnet", "lib/nb", "lib/flow", "lib/ruleset", "lib/config", "lib/platform"},
	core:       {"lib/desired"},
	engine:     {"lib/reconcile", "lib/defect", "lib/nbsync", "lib/flowsync"},
	edges:      {"lib/kube", "lib/ovsdb", "lib/link", "lib/garp", "lib/iptables", "lib/nftables", "lib/ofctl", "lib/prober", "lib/cli", "lib/daemon", "lib/vlog"},
	programs:   {"lib/settings", "lib/firewall", "lib/overlay", "lib/watcher", "lib/gateway", "lib/cni", "lib/nicbridge", "lib/ovnkube"},
	mains:      {"ovn-k8s-overlay", "ovn-k8s-watcher", "ovn-k8s-gateway-helper", "ovn-k8s-cni-overlay", "ovn-k8s-cni-shim", "ovn-k8s-util", "ovnkube"},
	tests:      {"lib", "docs", "test"}, // lib itself has nothing but tests
}

const (
	vocabulary = iota
	core
	engine
	edges
	programs
	mains
	tests
)

// shared are the packages of the programs' layer with imports from the other programs.
var shared = []string{"lib/settings", "lib/firewall"}

// composer puts roles of other programs together in one process, and may import them.
const composer = "lib/ovnkube"

// mainsMayUse are our packages for mains to start a program.
var mainsMayUse = append([]string{"lib/cli", "lib/daemon", "lib/vlog"}, layers[programs]...)

// owners lists the packages allowed to import a foreign module, or a part of it with an owner of its own. To use a
// module missing here, give it an owner, and the reason in the commit. os/exec is in the list because running other
// programs is an edge too. Programs may use libovsdb's types in the API of lib/ovsdb (operations, models and cache
// events), but not its client. Tests and packages under test may import everything.
var owners = map[string][]string{
	"os/exec":                                   {"lib/daemon", "lib/iptables", "lib/nftables", "lib/ofctl"},
	"github.com/bombsimon/logrusr/v4":           {"lib/ovsdb"},
	"github.com/cenkalti/backoff/v4":            {"lib/reconcile", "lib/kube", "lib/ovsdb", "lib/ofctl", "lib/iptables", "lib/overlay"},
	"github.com/containernetworking":            {"lib/cni", "lib/ovnkube/cniserver"},
	"github.com/coreos/go-iptables":             {"lib/iptables"},
	"github.com/coreos/go-systemd/v22":          {"lib/daemon"},
	"github.com/fsnotify/fsnotify":              {"lib/ovsdb"},
	"github.com/go-json-experiment/json":        {"lib/ovsdb/jsonrpc"},
	"github.com/go-logr/logr":                   {"lib/vlog", "lib/ovsdb"},
	"github.com/google/gopacket":                {"lib/garp"},
	"github.com/google/nftables":                {"lib/nftables"},
	"github.com/google/uuid":                    {"lib/nbsync"},
	"github.com/jessevdk/go-flags":              {"lib/cli"},
	"github.com/mdlayher/netlink":               {"lib/nftables"}, // for what google/nftables lacks
	"github.com/ovn-kubernetes/libovsdb/cache":  {"lib/nbsync", "lib/ovsdb", "lib/overlay", "lib/watcher", "lib/cni"},
	"github.com/ovn-kubernetes/libovsdb/client": {"lib/nbsync", "lib/ovsdb"},
	"github.com/ovn-kubernetes/libovsdb/mapper": {"lib/nbsync", "lib/ovsdb"},
	"github.com/ovn-kubernetes/libovsdb/model":  {"lib/nb", "lib/nbsync", "lib/ovsdb", "lib/overlay", "lib/watcher", "lib/cni"},
	"github.com/ovn-kubernetes/libovsdb/ovsdb":  {"lib/nb/nbdb", "lib/nbsync", "lib/ovsdb", "lib/overlay", "lib/watcher", "lib/cni", "lib/ovnkube"},
	"github.com/safchain/ethtool":               {"lib/link"},
	"github.com/sirupsen/logrus":                {"lib/reconcile", "lib/nbsync", "lib/kube", "lib/ovsdb", "lib/link", "lib/daemon", "lib/vlog", "lib/settings", "lib/overlay", "lib/watcher", "lib/cni", "lib/gateway", "lib/ovnkube"},
	"github.com/vishvananda/netlink":            {"lib/link"},
	"github.com/vishvananda/netns":              {"lib/link"},
	"golang.org/x/net/bpf":                      {"lib/garp"},
	"golang.org/x/sync":                         {"lib/overlay", "lib/watcher", "lib/cni", "lib/ovnkube", "lib/kube"},
	"golang.org/x/sys":                          {"lib/link", "lib/garp", "lib/nftables", "lib/prober", "lib/daemon", "lib/kube"},
	"google.golang.org/protobuf/encoding":       {"lib/kube"},
	"gopkg.in/ini.v1":                           {"lib/settings"},
	"k8s.io/api":                                {"lib/desired", "lib/kube", "lib/watcher", "lib/gateway", "lib/ovnkube"},
	"k8s.io/apimachinery":                       {"lib/desired", "lib/kube", "lib/watcher", "lib/overlay", "lib/cni", "lib/gateway", "lib/ovnkube"},
	"k8s.io/client-go":                          {"lib/kube"},
	"k8s.io/klog/v2":                            {"lib/vlog"},
	"sigs.k8s.io/knftables":                     {"lib/nftables"},
}

// pureMayUse are the imports of packages of the vocabulary and the core, in addition to each other: packages that
// compute. If a package could do more, only the given names are allowed. Only direct imports count: k8s.io/api
// itself reaches net/http.
var pureMayUse = map[string][]string{
	"bytes": nil, "cmp": nil, "container/heap": nil, "crypto/sha256": nil, "encoding/base32": nil, "encoding/binary": nil, "encoding/hex": nil, "encoding/json": nil, "encoding/pem": nil,
	"errors": nil, "fmt": nil, "hash/fnv": nil, "iter": nil, "maps": nil, "math": nil, "math/big": nil, "math/bits": nil, "net/netip": nil,
	"net/url": nil, "path": nil, "reflect": nil, "regexp": nil, "slices": nil, "sort": nil, "strconv": nil, "strings": nil,
	"net":                 {"AddrError", "HardwareAddr", "JoinHostPort", "ParseMAC", "SplitHostPort"},
	"time":                {"Duration", "ParseDuration", "Millisecond", "Second", "Minute", "Hour"},
	"k8s.io/api":          nil,
	"k8s.io/apimachinery": nil,
	// The models use the types of OVSDB.
	"github.com/ovn-kubernetes/libovsdb/model": nil,
	"github.com/ovn-kubernetes/libovsdb/ovsdb": nil,
}

// A goPackage is the output of go list for one package.
type goPackage struct {
	Dir, ImportPath, Name, Doc string
	Standard                   bool
	GoFiles, Imports           []string
}

// self is the package's path in this module.
func (p goPackage) self() string { return strings.TrimPrefix(p.ImportPath, module) }

// packages lists the module's packages and their imports.
func packages(t *testing.T, patterns ...string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=Dir,ImportPath,Name,Doc,Standard,GoFiles,Imports"}, patterns...)...)
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			t.Fatalf("go list: %s", failed.Stderr)
		}
		t.Fatal(err)
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestLayers(t *testing.T) {
	standard := map[string]bool{}
	for _, p := range packages(t, "std") {
		standard[p.ImportPath] = true
	}
	for _, p := range packages(t, "./...") {
		self := p.self()
		from := layer(self)
		if from < 0 {
			t.Errorf("%s has no layer: give it one in lib/layers_test.go, and a line in lib/doc.go", self)
			continue
		}
		if from == tests {
			continue
		}
		for _, imp := range p.Imports {
			own, ours := strings.CutPrefix(imp, module)
			switch {
			case ours:
				checkOwn(t, self, own)
			case !standard[imp] || owners[imp] != nil:
				checkForeign(t, self, imp)
			}
			if from == mains && ours && !under(own, mainsMayUse...) {
				t.Errorf("%s imports %s: a main only starts a program", self, imp)
			}
		}
		if from <= core {
			checkPure(t, p)
		}
	}
}

// checkOwn checks that self may import own, both packages of this module.
func checkOwn(t *testing.T, self, own string) {
	t.Helper()
	from, to := layer(self), layer(own)
	switch {
	case to < 0: // reported in the check of own itself
	case to > from:
		t.Errorf("%s (layer %d) imports %s (layer %d): imports point down", self, from, own, to)
	case from == edges && to == edges && root(self) != root(own):
		t.Errorf("%s imports %s: edges do not know each other", self, own)
	case from == programs && to == programs && root(self) != root(own) && root(self) != composer && !slices.Contains(shared, own):
		t.Errorf("%s imports %s: programs do not know each other", self, own)
	case from == engine && to == core:
		t.Errorf("%s imports %s: the engine does not know what it syncs", self, own)
	}
}

// checkForeign checks that self may import imp, a package of another module.
func checkForeign(t *testing.T, self, imp string) {
	t.Helper()
	var who []string
	var longest int
	for mod, owner := range owners {
		if under(imp, mod) && len(mod) > longest {
			who, longest = owner, len(mod)
		}
	}
	switch {
	case longest == 0:
		t.Errorf("%s imports %s, which has no owner in lib/layers_test.go", self, imp)
	case !under(self, who...):
		t.Errorf("%s imports %s: only %s may", self, imp, strings.Join(who, ", "))
	}
}

// checkPure checks that p only computes.
func checkPure(t *testing.T, p goPackage) {
	t.Helper()
	for _, file := range p.GoFiles {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, filepath.Join(p.Dir, file), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if generated(f) {
			continue
		}
		for _, spec := range f.Imports {
			imp, _ := strconv.Unquote(spec.Path.Value) // it has been parsed
			if strings.HasPrefix(imp, module) {
				continue
			}
			allowed, names := pure(imp)
			if !allowed {
				t.Errorf("%s imports %s: it must stay pure", p.self(), imp)
			}
			if names == nil {
				continue
			}
			for _, used := range selected(f, localName(spec, imp)) {
				if !slices.Contains(names, used) {
					t.Errorf("%s uses %s.%s: it must stay pure", p.self(), imp, used)
				}
			}
		}
	}
}

// pure reports whether a pure package may import imp, and returns the allowed names unless all are.
func pure(imp string) (bool, []string) {
	for mod, names := range pureMayUse {
		if imp == mod || strings.Contains(mod, ".") && under(imp, mod) {
			return true, names
		}
	}
	return false, nil
}

// localName is the name of an imported package in a file.
func localName(spec *ast.ImportSpec, imp string) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	return path.Base(imp)
}

// selected lists the names of a package used by f.
func selected(f *ast.File, pkg string) []string {
	var names []string
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == pkg {
				names = append(names, sel.Sel.Name)
			}
		}
		return true
	})
	return names
}

// layer is the layer of one of our packages, or -1.
func layer(pkg string) int {
	for i, l := range layers {
		if slices.Contains(l, root(pkg)) {
			return i
		}
	}
	return -1
}

// root is the package of layers that includes pkg: lib/kube for lib/kube/client, test for all packages under test.
func root(pkg string) string {
	parts := strings.Split(pkg, "/")
	if parts[0] == "lib" && len(parts) > 1 {
		return path.Join(parts[:2]...)
	}
	return parts[0]
}

// under reports whether pkg is one of the roots, or below one.
func under(pkg string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return pkg == r || strings.HasPrefix(pkg, r+"/") })
}
