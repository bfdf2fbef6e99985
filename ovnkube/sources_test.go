package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/ovnkube/options"
)

// show runs the program with --show-config in this process. Faults of values do not matter.
func show(h *host, args ...string) string {
	h.Helper()
	var out, errs bytes.Buffer
	if status := run(daemon.Arguments{All: append(args, "--show-config")}, cli.IO{Out: &out, Err: &errs}); status == 2 {
		h.Fatalf("%q: %s", args, &errs)
	}
	return out.String()
}

// TestEveryName: each option, key and variable reaches its setting.
func TestEveryName(t *testing.T) {
	h := newHost(t)
	for _, kv := range h.env() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	for _, s := range options.Settings() {
		value := "x-" + s.Name
		for _, f := range s.Flags {
			if got := shown(show(h, "-"+f.Text+"="+value), s.Name); !strings.HasSuffix(got, " --"+f.Text) || !s.Secret && !strings.Contains(got, value) {
				t.Errorf("--%s: %s", f.Text, got)
			}
		}
		for _, k := range s.Keys {
			if s.Name == "rundir" || s.Name == "logdir" { // the program uses them itself
				continue
			}
			section, key, ok := strings.Cut(k.Text, ".")
			source := "[" + section + "] " + key
			if !ok {
				section, key, source = "default", k.Text, k.Text
			}
			file := h.write("one.conf", fmt.Sprintf("[%s]\n%s = %s\n", section, key, value))
			got := shown(show(h, "-config-file="+file), s.Name)
			if !strings.HasSuffix(strings.ToLower(got), strings.ToLower(" "+file+": "+source)) || !s.Secret && !strings.Contains(got, value) {
				t.Errorf("%s: %s", source, got)
			}
		}
		for _, e := range s.Env {
			if strings.HasPrefix(e.Text, "KUBERNETES_") || strings.HasPrefix(e.Text, "OVS_") { // two make one value; the test's own
				continue
			}
			t.Run(e.Text, func(t *testing.T) {
				t.Setenv(e.Text, value)
				if got := shown(show(h), s.Name); !strings.HasSuffix(got, " environment: "+e.Text) || !s.Secret && !strings.Contains(got, value) {
					t.Errorf("%s: %s", e.Text, got)
				}
			})
		}
	}
}

// TestEveryPrecedence: with a value from each source the highest one has it; without that, the next one; and so on. So each
// pair of neighbours is compared.
func TestEveryPrecedence(t *testing.T) {
	h := newHost(t)
	h.startSwitch()
	for _, kv := range h.env() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	var flags []string
	var file strings.Builder
	for _, s := range options.Settings() {
		if f := s.Flags; len(f) > 0 {
			flags = append(flags, "-"+f[0].Text+"=1")
		}
		if s.ExternalID != "" {
			h.vsctl("set", "Open_vSwitch", ".", "external_ids:"+s.ExternalID+"=2")
		}
		if len(s.Keys) > 0 {
			section, key, ok := strings.Cut(s.Keys[0].Text, ".")
			if !ok {
				section, key = "default", s.Keys[0].Text
			}
			if key != "rundir" && key != "logdir" { // the program uses them itself
				fmt.Fprintf(&file, "[%s]\n%s=3\n", section, key)
			}
		}
		for _, e := range s.Env {
			if !strings.HasPrefix(e.Text, "OVS_") {
				t.Setenv(e.Text, "4")
			}
		}
	}
	path := h.write("all.conf", file.String())
	compare := func(level int, out string) {
		t.Helper()
		for _, s := range options.Settings() {
			has := []bool{len(s.Flags) > 0, s.ExternalID != "", len(s.Keys) > 0 && s.Name != "rundir" && s.Name != "logdir", len(s.Env) > 0}
			at := slices.Index(has[level:], true)
			if at < 0 || s.Name == "k8s-api-token-file" || s.Name == "rundir" || s.Name == "logdir" { // see TestTokenAndFile
				continue
			}
			want := []string{" --", " external_ids:", " " + path + ":", " environment: "}[level+at]
			if got := shown(out, s.Name); !strings.Contains(got, want) {
				t.Errorf("sources from %d on: %s, want%s", level, got, want)
			}
		}
	}
	compare(0, show(h, append(flags, "-config-file="+path)...))
	compare(1, show(h, "-config-file="+path))
	h.vsctl("clear", "Open_vSwitch", ".", "external_ids")
	compare(2, show(h, "-config-file="+path))
	out := show(h)
	compare(3, out)
	for _, s := range options.Settings() {
		if s.Default == "" || strings.HasPrefix(s.Default, "(") || strings.HasPrefix(s.Default, "/") || len(s.Env) > 0 {
			continue
		}
		if got := shown(out, s.Name); !strings.HasSuffix(got, " default") || !strings.Contains(got, s.Default) {
			t.Errorf("%s: %s", s.Name, got)
		}
	}
}

// TestTokenAndFile: of a token and a file with one, that of the higher source counts, and the token if both have the same source.
func TestTokenAndFile(t *testing.T) {
	h := newHost(t)
	h.startSwitch()
	for _, kv := range h.env() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	path := h.path("one.conf")
	sources := []string{"--", "external_ids:", path + ": ", "environment: "}
	tokens := []string{"k8s-token", "k8s-api-token", "[kubernetes] token", "K8S_TOKEN"}
	files := []string{"k8s-api-token-file", "ovn-k8s-api-token-file", "k8s_api_token_file"} // no variable
	for i, token := range tokens {
		for j, file := range files {
			t.Run(sources[i]+token+" "+sources[j]+file, func(t *testing.T) {
				args, inFile := []string{"-config-file=" + path}, ""
				h.vsctl("clear", "Open_vSwitch", ".", "external_ids")
				give := func(source int, name, value string) {
					switch source {
					case 0:
						args = append(args, "-"+name+"="+value)
					case 1:
						h.vsctl("set", "Open_vSwitch", ".", "external_ids:"+name+"="+value)
					case 2:
						section, key, _ := strings.Cut(strings.TrimPrefix(name, "["), "] ")
						if key == "" {
							section, key = "default", name
						}
						inFile += fmt.Sprintf("[%s]\n%s=%s\n", section, key, value)
					case 3:
						t.Setenv(name, value)
					}
				}
				give(i, token, "canary")
				give(j, file, "/token")
				h.write("one.conf", inFile)
				out := show(h, args...)
				wantToken, wantFile := "******** "+sources[i]+token, "- -"
				if j < i {
					wantToken, wantFile = "- -", "/token "+sources[j]+file
				}
				for name, want := range map[string]string{"k8s-api-token": wantToken, "k8s-api-token-file": wantFile} {
					if got := shown(out, name); got != name+" "+want {
						t.Errorf("%s, want %s", got, want)
					}
				}
			})
		}
	}
}
