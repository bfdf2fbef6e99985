package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// canary is the token of these tests.
const canary = "canary-3f9a71c2"

// AC-20: the token is in no output, no log, no command line, no environment of the program, and not in the database, at the
// highest level of details, however it is given; a line recommends the file.
func TestTheTokenIsNowhere(t *testing.T) {
	for _, spelling := range []string{"-k8s-token " + canary, "--k8s-token=" + canary, "-k8s-token=" + canary, "--k8s-tok " + canary} {
		t.Run(strings.ReplaceAll(spelling, canary, "X"), func(t *testing.T) {
			h := newHost(t)
			h.startSwitch()
			line := "-init-master=n1 -k8s-apiserver=http://127.0.0.1:1 -nb-address=tcp:127.0.0.1:1 -sb-address=tcp:127.0.0.1:1 -loglevel=5 -logfile=" + h.path("log/x.log") + " "
			p := h.start(strings.Fields(line + spelling))
			p.says("--k8s-api-token-file=FILE")
			p.says("waiting: ")
			for _, file := range []string{"cmdline", "environ"} {
				if text := h.read(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, file)); strings.Contains(text, canary) || file == "cmdline" && !strings.Contains(text, strings.Repeat("*", len(canary))) {
					t.Errorf("%s: %q", file, text)
				}
			}
			p.stop()
			h.wantNowhere(p.out.String())
		})
	}
	for name, source := range map[string]func(h *host) (env []string){
		"environment": func(*host) []string { return []string{"K8S_TOKEN=" + canary} },
		"file": func(h *host) []string {
			h.write("etc/openvswitch/ovn_k8s.conf", "[kubernetes]\ntoken="+canary+"\n")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			p := h.start(strings.Fields("-init-master=n1 -k8s-apiserver=http://127.0.0.1:1 -nb-address=tcp:127.0.0.1:1 -loglevel=5 -logfile="+h.path("log/x.log")), source(h)...)
			p.says("waiting: ")
			p.stop()
			h.wantNowhere(p.out.String())
		})
	}
}

// The token is in no message of a start that fails.
func TestTheTokenIsInNoError(t *testing.T) {
	h := newHost(t)
	h.startSwitch()
	for _, line := range []string{
		"", "-init-node=", "-no-such-option", "-init-master=n1 -nb-address=tcp:1", "-init-node=n1 -k8s-kubeconfig=/nowhere",
		"-init-node=n1 -config-file=/nowhere", "-init-node=n1 -cleanup-node=n1", "-init-master=n1 word", "-mtu", "-init-master=n1 -vfoo",
		"-init-master=n1 -pidfile=/nowhere/x.pid", "-init-master=n1 -nb-address=tcp:127.0.0.1:1 -k8s-apiserver=https://user:" + canary + "@a",
		"-init-master=n1 -unixctl=/nowhere/x.ctl", "-remove-node=n1 -nb-address=unix:/nowhere",
	} {
		for _, spelling := range []string{" -k8s-token=" + canary, " --k8s-token " + canary, " -k8s-token= " + canary, " -k8s-tokn=" + canary, " -k8s-tokn " + canary, " -loglevel=9 -k8s-token=" + canary} {
			status, out, errs := h.once(strings.Fields(line + spelling))
			if status == 0 || strings.Contains(out+errs, canary) && !strings.Contains(spelling, "-k8s-tokn ") && line != "-mtu" {
				t.Errorf("%s: status %d, %s%s", line+spelling, status, out, errs)
			}
		}
	}
	for _, token := range []string{canary + " x", canary + "\nx"} {
		if status, out, errs := h.once([]string{"-init-master=n1", "-nb-address=tcp:127.0.0.1:1", "-k8s-token=" + token}); status != 1 || strings.Contains(out+errs, canary) {
			t.Errorf("%q: status %d, %s%s", token, status, out, errs)
		}
	}
	h.wantNowhere("")
}

func (h *host) read(name string) string {
	h.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		h.Fatal(err)
	}
	return string(text)
}

// wantNowhere checks that the token is not in a text, in the files of the host except its configuration, or in its database.
func (h *host) wantNowhere(text string) {
	h.Helper()
	if strings.Contains(text, canary) {
		h.Errorf("it is in the output:\n%s", text)
	}
	err := filepath.WalkDir(h.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasSuffix(path, ".conf") && strings.Contains(h.read(path), canary) {
			h.Errorf("it is in %s", path)
		}
		return err
	})
	if err != nil {
		h.Fatal(err)
	}
}
