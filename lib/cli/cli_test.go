package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/test/reaper"
)

type suite struct {
	Verbose []string `short:"v" long:"verbose" optional:"yes" optional-value:"dbg" description:"log more"`
	Pidfile string   `long:"pidfile" optional:"yes" optional-value:"<default>" description:"write a pidfile"`
	Minion  minion   `command:"minion-init" description:"set up a node"`
	Master  master   `command:"master-init" description:"set up the cluster"`
	Nics    *nics    `command:"nics-to-bridge" description:"move NICs"`
}

type minion struct {
	Base
	parent  *suite
	Cluster string `long:"cluster-ip-subnet" required:"yes" value-name:"CIDR" description:"the pods' network"`
	Node    string `long:"node-name" required:"yes" value-name:"NAME" description:"the node"`
	NbCert  string `long:"nb-cert" description:"certificate"`
	NbCA    string `long:"nb-cacert" description:"CA"`
	Count   int    `long:"count" description:"a number"`
	DryRun  bool   `long:"dry-run" description:"change nothing"`
}

func (m *minion) Example() string { return "ovn-test minion-init --node-name=$(hostname)\n" }

func (m *minion) Run(_ context.Context, io IO) error {
	if m.Cluster == "" || m.Node == "" {
		return errors.New("Arguments should be non-null")
	}
	fmt.Fprintf(io.Out, "minion %s %s cert=%q ca=%q pidfile=%q v=%q\n", m.Node, m.Cluster, m.NbCert, m.NbCA, m.parent.Pidfile, m.parent.Verbose)
	return nil
}

type master struct {
	Base
	Fault string `long:"fault" description:"how to fail"`
}

type statusError struct {
	status int
	silent bool
}

func (e statusError) Error() string   { return "special" }
func (e statusError) ExitStatus() int { return e.status }
func (e statusError) Silent() bool    { return e.silent }

func (m *master) Run(context.Context, IO) error {
	a, b := errors.New("a"), errors.New("b")
	switch m.Fault {
	case "plain":
		return errors.New("creating switch node1: refused")
	case "join":
		return errors.Join(a, errors.Join(b, errors.New("c")))
	case "wrap":
		return fmt.Errorf("doing %w while %w", a, b)
	case "lines":
		return errors.New("x\ny\n")
	case "status":
		return fmt.Errorf("wrapped: %w", statusError{status: 5})
	case "silent":
		return statusError{status: 3, silent: true}
	case "refused": // by the kernel
		return fmt.Errorf("adding br1: %w", syscall.EPERM)
	case "canceled": // without a signal
		return context.Canceled
	}
	return nil
}

type nics struct {
	Base
	Args struct {
		Names []string `positional-arg-name:"NIC" required:"1" description:"a network interface"`
	} `positional-args:"yes"`
}

func (n *nics) Run(_ context.Context, io IO) error {
	fmt.Fprintln(io.Out, n.Args.Names)
	return nil
}

func runMain(args ...string) (status int, out, err string) {
	var o, e bytes.Buffer
	s := &suite{}
	s.Minion.parent = s
	p := Program{Name: "ovn-test", Version: "1.2", Summary: "Builds logical networks.", Example: "ovn-test master-init\n  ovn-test minion-init", Options: s}
	status = Main(p, args, IO{&o, &e})
	return status, o.String(), e.String()
}

func TestMainStatusAndOutput(t *testing.T) {
	const both = "--cluster-ip-subnet=10.0.0.0/16 --node-name=n1"
	for _, tt := range []struct {
		args   string
		status int
		out    string
		err    string
	}{
		{args: "minion-init " + both, out: `minion n1 10.0.0.0/16 cert="" ca="" pidfile="" v=[]` + "\n"},
		{args: "minion-init --cluster-ip-subnet 10.0.0.0/16 --node-name n1 --nb-cert=x", out: `minion n1 10.0.0.0/16 cert="x" ca="" pidfile="" v=[]` + "\n"},
		{args: "--pid minion-init --cl=10.0.0.0/16 --node n1 --nb-ca c", out: `minion n1 10.0.0.0/16 cert="" ca="c" pidfile="<default>" v=[]` + "\n"},
		{args: "--pidfile=/x minion-init " + both + " -vfile:info -v --verbose --verb --verb=warn", out: `minion n1 10.0.0.0/16 cert="" ca="" pidfile="/x" v=["file:info" "dbg" "dbg" "dbg" "warn"]` + "\n"},
		{args: "nics-to-bridge eth0 eth1", out: "[eth0 eth1]\n"},
		{args: "nics-to-bridge -- -v", out: "[-v]\n"},
		{args: "master-init"},
		{args: "--version", out: "ovn-test 1.2\n"},
		{args: "-V", out: "ovn-test 1.2\n"},
		{args: "minion-init --vers", out: "ovn-test 1.2\n"},

		{args: "minion-init --cluster-ip-subnet= --node-name=n1", status: 1, err: "Arguments should be non-null"},
		{args: "minion-init --cluster-ip-subnet  --node-name=n1", status: 1, err: "Arguments should be non-null"}, // an empty argument
		{args: "master-init --fault=plain", status: 1, err: "creating switch node1: refused"},
		{args: "master-init --fault=join", status: 1, err: "a\nb\nc"},
		{args: "master-init --fault=wrap", status: 1, err: "doing a while b"},
		{args: "master-init --fault=lines", status: 1, err: "x\ny"},
		{args: "master-init --fault=status", status: 5, err: "wrapped: special"},
		{args: "master-init --fault=silent", status: 3},
		{args: "master-init --fault=canceled", status: 1, err: "context canceled"},

		{args: "", status: 2, err: "no command given; it can be minion-init, master-init, nics-to-bridge (try 'ovn-test --help')"},
		{args: "mini-init", status: 2, err: `unknown command "mini-init"; it can be minion-init, master-init, nics-to-bridge (try 'ovn-test --help')`},
		{args: "minion-init", status: 2, err: "missing required option --cluster-ip-subnet, --node-name (try 'ovn-test minion-init --help')"},
		{args: "minion-init --node-name=n1", status: 2, err: "missing required option --cluster-ip-subnet (try 'ovn-test minion-init --help')"},
		{args: "minion-init --node-name", status: 2, err: "expected argument for option --node-name (try 'ovn-test minion-init --help')"},
		{args: "minion-init --node-name --count=1", status: 2, err: "expected argument for option --node-name, but got option --count=1 (try 'ovn-test minion-init --help')"},
		{args: "minion-init --count=x " + both, status: 2, err: `invalid argument for option --count (expected int): strconv.ParseInt: parsing "x": invalid syntax (try 'ovn-test minion-init --help')`},
		{args: "minion-init --dry-run=yes " + both, status: 2, err: "bool option --dry-run cannot have an argument (try 'ovn-test minion-init --help')"},
		{args: "minion-init --nb-c=x " + both, status: 2, err: "option --nb-c is ambiguous: it could be --nb-cacert, --nb-cert (try 'ovn-test minion-init --help')"},
		{args: "minion-init --nope " + both, status: 2, err: "unknown option --nope (try 'ovn-test minion-init --help')"},
		{args: "--node-name=n1 minion-init", status: 2, err: "unknown option --node-name (try 'ovn-test --help')"},
		{args: "minion-init -x " + both, status: 2, err: "unknown option -x (try 'ovn-test minion-init --help')"},
		{args: "minion-init " + both + " extra", status: 2, err: `unexpected argument "extra" (try 'ovn-test minion-init --help')`},
		{args: "minion-init " + both + " --pidfile /x.pid", status: 2, err: `unexpected argument "/x.pid": the value of --pidfile needs "=", as in --pidfile=/x.pid (try 'ovn-test minion-init --help')`},
		{args: "minion-init " + both + " --pidf /x.pid", status: 2, err: `unexpected argument "/x.pid": the value of --pidfile needs "=", as in --pidfile=/x.pid (try 'ovn-test minion-init --help')`},
		{args: "--pidfile /x.pid minion-init", status: 2, err: `unexpected argument "/x.pid": the value of --pidfile needs "=", as in --pidfile=/x.pid (try 'ovn-test --help')`},
		{args: "master-init -v file:info", status: 2, err: `unexpected argument "file:info": the value of --verbose needs "=", as in --verbose=file:info (try 'ovn-test master-init --help')`},
		{args: "nics-to-bridge", status: 2, err: "the required argument NIC (at least 1 argument) was not provided (try 'ovn-test nics-to-bridge --help')"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			var args []string
			if tt.args != "" {
				args = strings.Split(tt.args, " ")
			}
			status, out, stderr := runMain(args...)
			want := ""
			if tt.err != "" {
				want = "ovn-test: " + strings.ReplaceAll(tt.err, "\n", "\novn-test: ") + "\n"
			}
			if status != tt.status || out != tt.out || stderr != want {
				t.Errorf("status %d\nstdout %sstderr %swant status %d\nstdout %sstderr %s", status, out, stderr, tt.status, tt.out, want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	status, out, stderr := runMain("--help")
	want := `Usage:
  ovn-test [OPTIONS] <master-init | minion-init | nics-to-bridge>

Builds logical networks.

Options:
  -v, --verbose= log more
      --pidfile= write a pidfile

Other options:
  -h, --help     print this page
  -V, --version  print the version

Available commands:
  master-init     set up the cluster
  minion-init     set up a node
  nics-to-bridge  move NICs

Example:
  ovn-test master-init
  ovn-test minion-init

Exit status:
  0  done
  1  could not be done
  2  wrong command line
`
	if status != 0 || stderr != "" {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	if d := cmp.Diff(want, out); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestHelpOfACommand(t *testing.T) {
	for _, args := range [][]string{{"minion-init", "--help"}, {"minion-init", "--node-name=x", "-h"}, {"minion-init", "--he"}} {
		status, out, stderr := runMain(args...)
		if status != 0 || stderr != "" {
			t.Errorf("%q: status %d, stderr %q", args, status, stderr)
		}
		for _, want := range []string{
			"ovn-test [OPTIONS] minion-init [minion-init-OPTIONS]\n",
			"          --cluster-ip-subnet=CIDR    the pods' network\n",
			"\nExample:\n  ovn-test minion-init --node-name=$(hostname)\n\nExit status:\n",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%q lacks %q:\n%s", args, want, out)
			}
		}
	}
	if _, out, _ := runMain("master-init", "--help"); strings.Contains(out, "Example") {
		t.Errorf("example of another command:\n%s", out)
	}
}

// A waiter is a program without commands. It runs until a signal.
type waiter struct{}

func (w *waiter) Run(ctx context.Context, io IO) error {
	fmt.Fprintln(io.Out, "working")
	<-ctx.Done()
	fmt.Fprintln(io.Out, context.Cause(ctx))
	return fmt.Errorf("waiting: %w", ctx.Err())
}

func TestMain(m *testing.M) {
	if os.Getenv("CLI_TEST_WAITER") != "" {
		os.Exit(Main(Program{Name: "waiter", Options: &waiter{}}, os.Args[1:], OS()))
	}
	reaper.HearSignals()
	os.Exit(m.Run())
}

// startWaiter runs the waiter, by argv if given, and returns once it has started.
func startWaiter(t *testing.T, argv ...string) (*exec.Cmd, func() (out, err string, status int)) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv = append(argv, self)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "CLI_TEST_WAITER=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if n, err := stdout.Read(make([]byte, 64)); err != nil {
		t.Fatalf("read %d bytes: %v", n, err)
	}
	return cmd, func() (string, string, int) {
		var out bytes.Buffer
		_, _ = out.ReadFrom(stdout)
		_ = cmd.Wait()
		return out.String(), stderr.String(), cmd.ProcessState.ExitCode()
	}
}

// Root is told why the kernel may refuse something, other users are not.
func TestRefused(t *testing.T) {
	want := "ovn-test: adding br1: operation not permitted"
	if os.Geteuid() == 0 {
		want += `: the kernel refuses this to root, as with SELinux, AppArmor, or a container without the capability: see "ausearch -m avc" or dmesg, and allow it`
	}
	if status, out, err := runMain("master-init", "--fault=refused"); status != 1 || out != "" || err != want+"\n" {
		t.Errorf("exit status %d, output %q, errors %q, want %q", status, out, err, want)
	}
}

func TestSignalsEndTheProgram(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		cmd, wait := startWaiter(t)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		out, stderr, status := wait()
		if out != sig.String()+" signal received\n" || stderr != "waiter: "+sig.String()+" signal received: waiting: context canceled\n" || status != 1 {
			t.Errorf("%v: status %d, stdout %q, stderr %q", sig, status, out, stderr)
		}
	}
}

func TestNohupIsRespected(t *testing.T) {
	cmd, wait := startWaiter(t, "nohup")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	if out, _, status := wait(); status != 1 || out != "terminated signal received\n" {
		t.Errorf("status %d, %q", status, out)
	}
}
