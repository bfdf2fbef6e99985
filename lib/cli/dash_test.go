package cli

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A dashed is a program with options in groups, and long options with one dash.
type dashed struct {
	Pidfile string   `long:"pidfile" optional:"yes" optional-value:"<default>" description:"write a pidfile"`
	Show    bool     `long:"show-config" description:"print every setting"`
	Verbose []string `short:"v" long:"verbose" optional:"yes" optional-value:"dbg" description:"log more"`
	values  map[string]string
}

func (d *dashed) Run(_ context.Context, io IO) error {
	for _, k := range slices.Sorted(maps.Keys(d.values)) {
		_, _ = io.Out.Write([]byte(k + "=" + d.values[k] + " "))
	}
	for _, v := range d.Verbose {
		_, _ = io.Out.Write([]byte("v:" + v + " "))
	}
	if d.Show {
		_, _ = io.Out.Write([]byte("show "))
	}
	_, _ = io.Out.Write([]byte(d.Pidfile))
	return nil
}

func runDashed(args ...string) (status int, out, err string) {
	d := &dashed{values: map[string]string{}}
	var o, e bytes.Buffer
	status = Main(Program{Name: "d", Options: d, OneDash: true, Values: d.values, Groups: []Group{
		{"Role options", []Option{
			{Name: "init-node", Value: "NAME", Text: "be a node"},
			{Name: "nodeport", Boolean: true, Text: "open NodePorts"},
		}},
		{"Kubernetes options", []Option{
			{Name: "k8s-token", Value: "TOKEN", Text: "bearer token"},
			{Name: "service-range", Hidden: true},
		}},
	}}, args, IO{&o, &e})
	return status, strings.TrimSpace(o.String()), strings.TrimSpace(e.String())
}

func TestOneDash(t *testing.T) {
	for _, tt := range []struct {
		args, out, err string
	}{
		{args: "-init-node=n1 -nodeport", out: "init-node=n1 nodeport=true"},
		{args: "--init-node n1 --nodeport=false", out: "init-node=n1 nodeport=false"},
		{args: "-nodeport=x", out: "nodeport=x"}, // its setting refuses it
		{args: "-nodeport false", err: `d: unexpected argument "false": the value of --nodeport needs "=", as in --nodeport=false (try 'd --help')`},
		{args: "-init-node n1 -init-node n2", out: "init-node=n2"},
		{args: "-init-node=", out: "init-node="},
		{args: "-k8s-token -a.b -service-range=1=2", out: "k8s-token=-a.b service-range=1=2"},
		{args: "-show-config=true", out: "show"},
		{args: "-show-config=0 -show-config=false"},
		{args: "-show-config=no", err: "d: bool option --show-config cannot have an argument (try 'd --help')"},
		{args: "-pidfile /x.pid -vfile:info -verbose -v", out: "v:file:info v:dbg v:dbg /x.pid"},
		{args: "-pidfile -nodeport", out: "nodeport=true <default>"},
		{args: "--pidfile=/y", out: "/y"},
		{args: "-init-node -nodeport", err: "d: expected argument for option --init-node, but got option -nodeport (try 'd --help')"},
		{args: "-init-node", err: "d: expected argument for option --init-node (try 'd --help')"},
		{args: "-init-nose=x", err: "d: unknown option -init-nose (try 'd --help')"},
		{args: "-- -nodeport", err: `d: unexpected argument "-nodeport" (try 'd --help')`},
	} {
		var args []string
		if tt.args != "" {
			args = strings.Split(tt.args, " ")
		}
		if _, out, err := runDashed(args...); out != tt.out || err != tt.err {
			t.Errorf("%s:\n got %q, %q\nwant %q, %q", tt.args, out, err, tt.out, tt.err)
		}
	}
	if status, _, stderr := runMain("-pidfile", "master-init"); status != 2 {
		t.Errorf("a program that did not ask for it takes long options with one dash: %s", stderr)
	}
}

func TestHelpByGroups(t *testing.T) {
	_, out, _ := runDashed("-help")
	want := `Usage:
  d [OPTIONS]

Options:
      --pidfile=           write a pidfile
      --show-config        print every setting
  -v, --verbose=           log more

Role options:
      --init-node=NAME     be a node
      --nodeport=          open NodePorts

Kubernetes options:
      --k8s-token=TOKEN    bearer token

Other options:
  -h, --help               print this page
  -V, --version            print the version

Exit status:
  0  done
  1  could not be done
  2  wrong command line`
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A rewritten argument stays the same.
func FuzzTwoDashes(f *testing.F) {
	known := map[string]shape{"a": valued, "b": boolean, "p": optional, "t": truth}
	f.Add("-a x -b=true -p -t=0 -- -a")
	f.Add("-a -b")
	f.Fuzz(func(t *testing.T, line string) {
		once := twoDashes(strings.Split(line, " "), known)
		if again := twoDashes(once, known); !slices.Equal(once, again) {
			t.Errorf("%q: %q, then %q", line, once, again)
		}
	})
}
