package daemon

import (
	"io"
	"net"
	"sync"
	"testing"
)

// talk ends with the connection on any input, and its replies come from commands.
func FuzzTalk(f *testing.F) {
	for _, s := range []string{
		`{"id":0,"method":"version","params":[]}`, `{"id":0,"method":"help"}{"id":1,"method":"exit","params":[]}`,
		`{"id":{},"method":"echo","params":["\ud800"]}`, `[[[`, `{"id":1,"method":"echo","params":[null]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		c := newControl(nil)
		c.exit = sync.OnceFunc(func() { close(c.ended) })
		echo := Command{Name: "echo", Max: 3, Run: func(args []string) (string, error) { return args[0], nil }, Min: 1}
		for _, cmd := range append(c.builtins(Service{Name: "prog", Version: "1"}), echo) {
			c.commands[cmd.Name] = cmd
		}
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.talk(ours)
		}()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		_, _ = theirs.Write(in)
		_ = theirs.Close()
		<-done
	})
}
