package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Limits for peers of the control socket: a broken peer costs a descriptor for a while.
const (
	maxRequest   = 1 << 20
	maxPeers     = 64
	idleTimeout  = time.Minute
	replyTimeout = 10 * time.Second
	endTimeout   = time.Second
)

// noSocket as --unixctl disables the socket (ovs-vswitchd(8)).
const noSocket = "none"

// A control is the control socket: a server of JSON-RPC 1.0. Methods are commands with strings as parameters and text
// as their result.
type control struct {
	path     string
	listener *net.UnixListener
	commands map[string]Command
	exit     func()
	peers    chan struct{} // a token for each connection

	ended chan struct{} // closed by close

	mu    sync.Mutex
	conns map[net.Conn]bool
	idle  chan struct{} // closed if conns is empty after close
}

// defaultSocket is the control socket of the program's process pid.
func (s Service) defaultSocket(pid int) string {
	return inRunDir(fmt.Sprintf("%s.%d.ctl", s.Name, pid))
}

// listen creates the control socket and serves it until close. The command "exit" calls exit and is answered by close.
func (s Service) listen(exit func()) (*control, error) {
	if s.Options.Unixctl == noSocket {
		return &control{}, nil
	}
	path := s.defaultSocket(os.Getpid())
	if s.Options.Unixctl != "" {
		path = inRunDir(s.Options.Unixctl)
	}
	l, err := listenUnix(path)
	if err != nil {
		return nil, err
	}
	c := newControl(exit)
	c.path, c.listener = path, l
	for _, cmd := range append(c.builtins(s), s.Commands...) {
		c.commands[cmd.Name] = cmd
	}
	go c.accept()
	return c, nil
}

func newControl(exit func()) *control {
	return &control{
		exit: exit, commands: make(map[string]Command), peers: make(chan struct{}, maxPeers),
		ended: make(chan struct{}), conns: make(map[net.Conn]bool), idle: make(chan struct{}),
	}
}

// builtins are the commands of every daemon.
func (c *control) builtins(s Service) []Command {
	return []Command{
		{Name: "exit", Run: c.end},
		{Name: "help", Run: c.help},
		{Name: "list-commands", Run: c.help},
		{Name: "version", Run: func([]string) (string, error) { return s.Name + " " + s.Version, nil }},
	}
}

// end ends the daemon. It returns when the daemon has done its work and released its files, so that the next one can
// start, or after replyTimeout.
func (c *control) end([]string) (string, error) {
	c.exit()
	select {
	case <-c.ended:
	case <-time.After(replyTimeout):
	}
	return "", nil
}

func (c *control) help([]string) (string, error) {
	var b strings.Builder
	b.WriteString("The available commands are:\n")
	for _, name := range slices.Sorted(maps.Keys(c.commands)) {
		if c.commands[name].Usage == Hidden {
			continue
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-23s %s", name, c.commands[name].Usage), " ") + "\n")
	}
	return b.String(), nil
}

// listenUnix binds path for connections of this user only. It replaces only the stale socket of a dead process.
func listenUnix(path string) (*net.UnixListener, error) {
	if err := writable(path); err != nil {
		return nil, err
	}
	// A socket's name is limited to 107 bytes. Like Open vSwitch, go through the directory's descriptor.
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making control socket %s: %w", path, err)
	}
	defer unix.Close(dir)
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path))
	if err := removeStaleSocket(path, short); err != nil {
		return nil, err
	}
	l, err := listenPrivate(short)
	if err != nil {
		return nil, fmt.Errorf("making control socket %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // its name ends with this function
	return l, nil
}

// listenPrivate binds a socket with mode 0700. chmod by name would follow a symbolic link planted by the directory's
// owner, perhaps not root. Instead, fchmod before bind(2) sets the mode of the file.
func listenPrivate(name string) (*net.UnixListener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close() // FileListener duplicates it
	err = errors.Join(unix.Fchmod(fd, 0o700), unix.Bind(fd, &unix.SockaddrUnix{Name: name}))
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		return nil, err
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

func removeStaleSocket(path, short string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("making control socket: %w", err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("making control socket: %s exists and is not a socket", path)
	}
	if conn, err := net.DialTimeout("unix", short, replyTimeout); err == nil {
		_ = conn.Close()
		return fmt.Errorf("making control socket: another process listens on %s", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing stale control socket: %w", err)
	}
	return nil
}

// close removes the socket and answers the command "exit". It does not wait for other running commands for more than
// endTimeout: the process is about to end.
func (c *control) close() {
	if c.listener == nil {
		return
	}
	_ = c.listener.Close()
	_ = os.Remove(c.path)
	c.mu.Lock()
	close(c.ended)
	for conn := range c.conns {
		_ = conn.SetReadDeadline(time.Now())
	}
	if len(c.conns) == 0 {
		close(c.idle)
	}
	c.mu.Unlock()
	select {
	case <-c.idle:
	case <-time.After(endTimeout):
	}
}

// closed reports whether close was called.
func (c *control) closed() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// accept serves until the listener is closed.
func (c *control) accept() {
	for {
		c.peers <- struct{}{}
		conn, err := c.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for example no free descriptor: wait until others are closed
			<-c.peers
			pause(context.Background(), 100*time.Millisecond)
			continue
		}
		go func() {
			defer func() { <-c.peers }()
			c.talk(conn)
		}()
	}
}

type request struct {
	ID     json.RawMessage   `json:"id"`
	Method *string           `json:"method"`
	Params []json.RawMessage `json:"params"`
}

type reply struct {
	ID     json.RawMessage `json:"id"`
	Result *string         `json:"result"`
	Error  *string         `json:"error"`
}

// talk answers the requests of one connection until it ends, violates the protocol or times out.
func (c *control) talk(conn net.Conn) {
	defer conn.Close()
	if !c.track(conn) {
		return
	}
	defer c.untrack(conn)

	in := &io.LimitedReader{R: conn}
	dec := json.NewDecoder(in)
	for c.await(conn) {
		in.N = maxRequest
		var req request
		if err := dec.Decode(&req); err != nil || req.Method == nil {
			return
		}
		if len(req.ID) == 0 || string(req.ID) == "null" {
			continue // a notification: no reply
		}
		text, err := c.run(*req.Method, req.Params)
		_ = conn.SetWriteDeadline(time.Now().Add(replyTimeout))
		if json.NewEncoder(conn).Encode(answer(req.ID, text, err)) != nil {
			return
		}
	}
}

// await bounds the time until the next request. It returns false after close.
func (c *control) await(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed() {
		return false
	}
	_ = conn.SetReadDeadline(time.Now().Add(idleTimeout))
	return true
}

func (c *control) track(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed() {
		return false
	}
	c.conns[conn] = true
	return true
}

func (c *control) untrack(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, conn)
	if c.closed() && len(c.conns) == 0 {
		close(c.idle)
	}
}

// run runs a command. Its errors are worded as in Open vSwitch.
func (c *control) run(name string, params []json.RawMessage) (string, error) {
	cmd, ok := c.commands[name]
	switch {
	case !ok:
		return "", fmt.Errorf("%q is not a valid command (use \"list-commands\" to see a list of valid commands)", name)
	case len(params) < cmd.Min:
		return "", fmt.Errorf("%q command requires at least %d arguments", name, cmd.Min)
	case len(params) > cmd.Max:
		return "", fmt.Errorf("%q command takes at most %d arguments", name, cmd.Max)
	}
	args := make([]string, len(params))
	for i, p := range params {
		var s *string
		if err := json.Unmarshal(p, &s); err != nil || s == nil {
			return "", fmt.Errorf("%q command has non-string argument", name)
		}
		args[i] = *s
	}
	return cmd.Run(args)
}

// answer is the reply to a request. ovs-appctl prints it as it is, so text ends with a newline.
func answer(id json.RawMessage, text string, err error) reply {
	if err != nil {
		msg := withNewline(cmp.Or(err.Error(), "error"))
		return reply{ID: id, Error: &msg}
	}
	text = withNewline(text)
	return reply{ID: id, Result: &text}
}

func withNewline(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}
