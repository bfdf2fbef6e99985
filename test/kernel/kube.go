package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"ovn-k8s/test/build"
)

// kubeVariable has the port where serveKube listens.
const kubeVariable = "OVNK8S_KERNEL_KUBE"

// serveKube starts a control plane outside for each connection of askKube: a line of
// arguments leads to the line of kcluster. The connection's end kills kcluster; a
// byte before it ends it gracefully.
func (p place) serveKube(ctx context.Context, l net.Listener) *sync.WaitGroup {
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				context.AfterFunc(ctx, func() { _ = conn.Close() })
				if err := p.runKube(conn); err != nil {
					fmt.Fprintf(os.Stderr, "test-kernel: control plane: %v\n", err)
				}
			})
		}
	})
	return &all
}

func (p place) runKube(conn net.Conn) error {
	from := bufio.NewReader(conn)
	line, err := from.ReadBytes('\n')
	if err != nil {
		return err
	}
	var args []string
	if err := json.Unmarshal(line, &args); err != nil {
		return err
	}
	dir, err := build.Dir()
	if err != nil {
		return err
	}
	at := slices.Index(args, "-dir") + 1 // askKube's have it
	args[at] = p.path(kubeShare, fmt.Sprintf("%x", sha256.Sum256([]byte(args[at])))[:8])
	if err := os.MkdirAll(args[at], 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(args[at], "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(dir, "kcluster"), args...)
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		if _, err := from.ReadByte(); err == nil {
			_ = stdin.Close()
			_, _ = from.ReadByte()
		}
		_ = cmd.Process.Kill()
	}()
	said, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		stop, failed := p.expose(said)
		defer stop()
		if err = failed; err == nil {
			_, err = conn.Write(said)
		}
	}
	_ = cmd.Wait() // the end of the connection tells askKube
	return err
}

// expose has a control plane, of kcluster's line, reached from a user mode Linux. QEMU's user network needs nothing for it.
func (p place) expose(said []byte) (stop func(), err error) {
	stop = func() {}
	u, err := kubeURL(said)
	if err != nil || !p.userMode {
		return stop, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(outside, u.Port()))
	if err != nil {
		return stop, err
	}
	go forward(l, u.Host)
	return func() { _ = l.Close() }, nil
}

// kubeURL returns the API server's URL in the line of kcluster.
func kubeURL(line []byte) (*url.URL, error) {
	var said struct{ URL string }
	if err := json.Unmarshal(line, &said); err != nil {
		return nil, err
	}
	return url.Parse(said.URL)
}

// askKube is the program kcluster in the machine: it asks for one outside, and
// forwards its port. So signals to this process have the effects they have on a
// control plane.
func askKube(args []string) error {
	conn, err := net.Dial("tcp", net.JoinHostPort(outside, os.Getenv(kubeVariable)))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(args); err != nil {
		return err
	}
	from := bufio.NewReader(conn)
	line, err := from.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("no control plane outside: %w", err)
	}
	u, err := kubeURL(line)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", u.Host)
	if err != nil {
		return err
	}
	go forward(l, net.JoinHostPort(outside, u.Port()))
	if _, err := io.Copy(os.Stdout, bytes.NewReader(line)); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until its end
		_, _ = conn.Write([]byte{'\n'})
	}()
	_, _ = from.ReadByte() // until the control plane's end
	return nil
}

// forward forwards TCP connections.
func forward(l net.Listener, to string) {
	for {
		near, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer near.Close()
			far, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer far.Close()
			go func() { _, _ = io.Copy(far, near); _ = far.(*net.TCPConn).CloseWrite() }()
			_, _ = io.Copy(near, far)
		}()
	}
}
