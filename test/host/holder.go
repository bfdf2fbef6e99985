package host

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
)

// A holder is the process keeping a set of namespaces alive. It reads from a pipe
// and ends when this program closes the pipe or exits.
type holder struct {
	pid   int
	cmd   *exec.Cmd
	stdin io.Closer
}

// hold runs a script with unshare(1). The script prints its process ID and then
// waits for the end of its standard input.
func hold(script string, unshare []string, args ...string) (*holder, error) {
	cmd := exec.Command("unshare", append(append(unshare, "sh", "-c", script, "sh"), args...)...)
	cmd.Env = Environment()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h := &holder{cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err == nil {
		h.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	if err != nil {
		h.close() // also waits for the rest of standard error
		return nil, errors.New(strings.TrimSpace(fmt.Sprintf("setting up namespaces: %s %q", &complaint, line)))
	}
	return h, nil
}

// close ends the namespaces.
func (h *holder) close() {
	_ = h.stdin.Close() // an error means that it is closed already
	_ = h.cmd.Wait()
}
