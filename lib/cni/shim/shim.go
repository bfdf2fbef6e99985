// Package shim is a CNI plugin without work of its own: it hands each call of a container runtime to the CNI server of ovnkube,
// and prints the answer. While the server is away, as during a restart, it waits.
//
// Every pod start pays for the packages linked here. It links no client of Kubernetes, OVSDB or netlink.
package shim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"ovn-k8s/lib/cni/protocol"
)

// program is the plugin's name on hosts.
const program = "ovn-k8s-cni-overlay"

// limit bounds a call, with the time to wait for the server. A container runtime kills the plugin at the end of the kubelet's
// request: 4 minutes for a new sandbox, 2 minutes for its end (kubelet, --runtime-request-timeout, and
// pkg/kubelet/cri/remote). The runtime's own work takes a part of that, such as pulling the image of the sandbox. CRI-O kills
// DEL after a minute (server/sandbox_network.go, networkStop). GC may come from a runtime that starts, and ovnkube may start
// after the runtime; for STATUS see protocol.StatusPatience.
func limit(command string) time.Duration {
	switch command {
	case "ADD":
		return 200 * time.Second
	case "GC", "STATUS":
		return 30 * time.Second
	}
	return 50 * time.Second
}

// patience bounds the time without a server.
func patience(command string) time.Duration {
	switch command {
	case "GC":
		return 3 * time.Second
	case "STATUS":
		return protocol.StatusPatience
	}
	return limit(command)
}

const (
	// retryInterval is the time between two tries to reach the server.
	retryInterval = 50 * time.Millisecond
	// undoTimeout bounds the removal of an attachment with a result that cannot be printed.
	undoTimeout = 30 * time.Second
)

// Main serves the request of this process's environment and standard input, and returns the exit status: see
// protocol.Main. release is the program's version, for people who run it by hand.
func Main(release string) int {
	runtime.GOMAXPROCS(1)          // threads that only wait for work take a tenth of the CPU time
	signal.Ignore(syscall.SIGPIPE) // if the runtime is gone before the result is written, ADD is undone
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	return protocol.Main(protocol.About(program, release), func(command string, args *skel.CmdArgs) (string, *types.Error) {
		c := call{command, args, protocol.Socket}
		f := c.run(ctx)
		return f.Version, f.Error
	})
}

// A call is a call of the plugin.
type call struct {
	command string
	args    *skel.CmdArgs
	socket  string
}

// run executes the call and prints the result of ADD.
func (c call) run(ctx context.Context) protocol.Failure {
	ended, cancel := context.WithTimeoutCause(ctx, limit(c.command), fmt.Errorf("no answer within %v", limit(c.command)))
	defer cancel()
	a, err := c.await(ended)
	switch {
	case err != nil:
		return c.unserved(err)
	case a.failure != nil:
		a.failure.Version = cmp.Or(a.failure.Version, c.version())
		return *a.failure
	case c.command != "ADD":
		return protocol.Failure{Version: c.version()}
	}
	return c.print(a.result)
}

// print prints the result of ADD. If it cannot, ADD is undone.
func (c call) print(result []byte) protocol.Failure {
	err := printAs(c.version(), result)
	if err == nil {
		return protocol.Failure{Version: c.version()}
	}
	undo := c
	undo.command = "DEL"
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout) // ctx may have ended
	defer cancel()
	_, _ = undo.await(ctx) // if it fails, the runtime's DEL removes the rest
	return c.failure(types.ErrIOFailure, "writing the result", err.Error())
}

// printAs prints a result of the server in a version of the specification.
func printAs(version string, result []byte) error {
	if bytes.HasPrefix(result, []byte(`{"cniVersion":"`+version+`",`)) { // it has the version
		var text bytes.Buffer
		if err := json.Indent(&text, result, "", "    "); err != nil {
			return err
		}
		_, err := text.WriteTo(os.Stdout)
		return err
	}
	r := &types100.Result{}
	if err := json.Unmarshal(result, r); err != nil {
		return err
	}
	return protocol.Print(r, version)
}

// await asks the server, again while it is away or ends. Commands may be repeated: to add an attachment again changes nothing.
func (c call) await(ctx context.Context) (answer, error) {
	body, err := c.request()
	if err != nil {
		return answer{}, err
	}
	var away time.Time // since when
	for tries := 1; ; tries++ {
		a, err := ask(ctx, c.socket, body)
		if err == nil || !errors.Is(err, errAway) {
			return a, err
		}
		if tries == 1 {
			away = time.Now() // a server that ends has had the request before
		}
		if c.command == "DEL" && tries == 1 && len(c.left()) == 0 {
			return answer{}, nil
		}
		if ctx.Err() == nil && time.Since(away) >= patience(c.command) {
			return answer{}, err
		}
		select {
		case <-ctx.Done():
			return answer{}, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(retryInterval):
		}
	}
}

// unserved is the failure of a call without an answer; DEL fails only if a part of the attachment is left.
func (c call) unserved(err error) protocol.Failure {
	code, details := uint(types.ErrTryAgainLater), err.Error()+": is ovnkube running on this host?"
	switch c.command {
	case "STATUS":
		code = protocol.Unavailable
	case "DEL":
		left := c.left()
		if len(left) == 0 {
			return protocol.Failure{Version: c.version()}
		}
		details += " Left of the container: " + strings.Join(left, ", ")
	}
	return c.failure(code, "the CNI server of ovnkube does not answer", details)
}

func (c call) failure(code uint, message, details string) protocol.Failure {
	return protocol.Failure{Version: c.version(), Error: types.NewError(code, message, details)}
}

// version is the version of the specification for the output.
func (c call) version() string {
	v, err := (&version.ConfigDecoder{}).Decode(c.args.StdinData)
	if err != nil || !slices.Contains(version.All.SupportedVersions(), v) {
		return types100.ImplementedSpecVersion
	}
	return v
}

// request is the request for the server.
func (c call) request() ([]byte, error) {
	r := protocol.Request{Env: map[string]string{}, Config: trim(c.args.StdinData)}
	for _, kv := range os.Environ() {
		if key, value, _ := strings.Cut(kv, "="); strings.HasPrefix(key, "CNI_") {
			r.Env[key] = value
		}
	}
	r.Env["CNI_COMMAND"] = c.command
	body, err := json.Marshal(r)
	if err == nil && len(body) > protocol.MaxRequest {
		err = fmt.Errorf("the request has %d bytes, more than the server accepts (%d): shorten the network configuration", len(body), protocol.MaxRequest)
	}
	return body, err
}

const (
	// maxConfig is the size of a network configuration that fits into a request as it is.
	maxConfig = protocol.MaxRequest / 2
	// maxValue is the size of a value that is kept in a larger one.
	maxValue = 16 << 10
)

// trim returns a network configuration without large values that the server does not read.
func trim(config []byte) []byte {
	if len(config) <= maxConfig {
		return config
	}
	var values map[string]json.RawMessage
	if json.Unmarshal(config, &values) != nil {
		return config
	}
	for key, v := range values {
		if len(v) > maxValue && key != "prevResult" && key != "cni.dev/valid-attachments" {
			delete(values, key)
		}
	}
	trimmed, err := json.Marshal(values)
	if err != nil {
		return config
	}
	return trimmed
}
