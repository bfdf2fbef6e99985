package vlog

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSpec(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Spec
		err  string
	}{
		{in: "file:info", want: Spec{Dest: File, Level: Info, Explicit: true}},
		{in: "info,file", want: Spec{Dest: File, Level: Info, Explicit: true}},
		{in: "FILE INFO", want: Spec{Dest: File, Level: Info, Explicit: true}},
		{in: "dbg", want: Spec{Dest: AnyDest, Level: Dbg, Explicit: true}},
		{in: "", want: Spec{Dest: AnyDest, Level: Dbg}},
		{in: "any:any:off", want: Spec{Dest: AnyDest, Level: Off, Explicit: true}},
		{in: "watcher:console:warn", want: Spec{Module: "watcher", Dest: Console, Level: Warn, Explicit: true}},
		{in: "console:emer", want: Spec{Dest: Console, Level: Emer, Explicit: true}},
		{in: "syslog:err", want: Spec{Dest: Syslog, Level: Err, Explicit: true}},
		{in: "watcher", want: Spec{Module: "watcher", Dest: AnyDest, Level: Dbg}},
		{in: "PATTERN:file:%m: %%{a}", want: Spec{Dest: File, Pattern: "%m: %%{a}"}},
		{in: "pattern:any:%-10m|%05N", want: Spec{Dest: AnyDest, Pattern: "%-10m|%05N"}},

		{in: "a:b", err: `no destination, level, or module "b"`},
		{in: "dbg:info", err: "cannot specify multiple levels"},
		{in: "file:console", err: "cannot specify multiple destinations"},
		{in: "pattern:", err: "missing destination"},
		{in: "pattern:file", err: "missing pattern"},
		{in: "pattern:file:", err: "missing pattern"},
		{in: "pattern:disk:%m", err: `unknown destination "disk" (console, syslog, file or any)`},
		{in: "pattern:file:%x", err: "unknown escape %x in pattern"},
		{in: "pattern:file:100%", err: "pattern ends inside a % escape"},
		{in: "pattern:file:%D{%Y", err: "missing } in pattern"},
		{in: "pattern:file:%99999999m", err: "field width 99999999 in pattern is more than 256"},
	} {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParseSpec(tt.in)
			if msg := errText(err); msg != tt.err {
				t.Fatalf("error %q, want %q", msg, tt.err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, s := range []string{"", "file:info", "watcher:console:warn", "pattern:file:%D{%H:%M:%S.###}|%-5p|%m", "PATTERN:any:%n%%", "pattern:x:%0", "\xff:dbg"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		spec, err := ParseSpec(s)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("error of more than one line: %q", err)
			}
			return
		}
		if spec.Pattern == "" {
			return
		}
		p, err := parsePattern(spec.Pattern)
		if err != nil {
			t.Fatalf("accepted as a spec, but: %v", err)
		}
		var b strings.Builder
		if err := p.write(&b, line{program: &program{}}); err != nil || !strings.HasSuffix(b.String(), "\n") {
			t.Errorf("printed %q, %v", b.String(), err)
		}
	})
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
