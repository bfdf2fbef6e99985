// Package protocol has the parts of a CNI plugin that need neither a database nor the API server: the call by a runtime,
// the output, and the requests of ovn-k8s-cni-shim to the CNI server of ovnkube. Every pod start pays for the packages
// linked into the shim, so this package imports few.
package protocol

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// Error codes of our own, and for STATUS. Those of the specification are in package types.
const (
	Failed      = 100 // as in the Python version: any error without a code
	Plugging    = 106 // as in the Python version: Open vSwitch rejected the port
	Unavailable = 50  // STATUS: cannot serve ADD
	Limited     = 51  // STATUS: also, running containers may have limited connectivity
)

// StatusPatience bounds the wait of STATUS for a restarting program: a restart takes seconds. If STATUS fails once,
// the kubelet makes its Node NotReady, and the pods leave all Services. The shim waits for the server, and the server then for
// the daemons: both together must end before the kubelet, which asks every 5 s, takes the runtime for dead after 30 s without
// an answer (kubelet, maxWaitForContainerRuntime).
const StatusPatience = 10 * time.Second

// A Failure is an error in the format of section 5 of the specification, with the version, which the library omits.
type Failure struct {
	Version string `json:"cniVersion"`
	*types.Error
}

// Print writes the failure for a runtime.
func (f Failure) Print(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "    ")
	return encoder.Encode(f)
}

// Main serves the request of this process's environment and standard input, and returns the exit status: 0, or 1 with an
// error as JSON on standard output or, if that is not possible, as text on standard error. serve executes a command and prints the result of ADD; it returns the version of the
// specification for its error. about is printed for people who run the program by hand.
func Main(about string, serve func(command string, args *skel.CmdArgs) (version string, err *types.Error)) int {
	f := Failure{Version: types100.ImplementedSpecVersion}
	command := func(name string) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error {
			v, err := serve(name, args)
			if f.Version = v; err != nil {
				return err
			}
			return nil // not a nil *types.Error
		}
	}
	f.Error = skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: command("ADD"), Del: command("DEL"), Check: command("CHECK"), GC: command("GC"), Status: command("STATUS"),
	}, version.All, about)
	if f.Error == nil {
		return 0
	}
	if f.Print(os.Stdout) != nil {
		fmt.Fprintln(os.Stderr, f.Error)
	}
	return 1
}

// About describes a plugin for people who run it by hand.
func About(program, release string) string {
	return fmt.Sprintf("%s %s: the CNI plugin of ovn-k8s; a container runtime runs it, see docs/install.md", program, release)
}

// Print prints the result of ADD in a version of the specification.
func Print(r *types100.Result, version string) error {
	converted, err := r.GetAsVersion(version)
	if err != nil {
		return err
	}
	return converted.Print()
}

// Answer is the result of ADD for an answer to a request with a version. A result that needs no conversion spares the shim
// the work.
func Answer(r types100.Result, version string) *types100.Result {
	if version == "1.0.0" { // its format is that of 1.1.0
		r.CNIVersion = version
	}
	return &r
}

const (
	// Socket is the address of the CNI server.
	Socket = "/var/run/ovn-kubernetes/cni/ovn-cni-server.sock"
	// MaxRequest is the largest size of a Request in JSON, in bytes.
	MaxRequest = 1 << 20
)

// Served reports whether a CNI server has its socket.
func Served() bool {
	c, err := net.DialTimeout("unix", Socket, time.Second)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// A Request is the body of an HTTP request to the CNI server, as JSON: POST / with the type application/json. Answers:
//
//	200  success; for ADD with the result in JSON, in the version of Config if the newest format has it, else in the newest
//	400  a Failure of the command, as application/json
//	4xx  a request that cannot be executed, with one line as text/plain
//	503  the server ends and has undone the command; the next server can be asked again
type Request struct {
	// Env are the variables of the plugin, those with the prefix CNI_.
	Env map[string]string `json:"env"`
	// Config is the plugin's standard input.
	Config []byte `json:"config"`
}
