package vlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/syslog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bombsimon/logrusr/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

// stamp is the time of a line.
var stamp = regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\|`)

// lines returns the output without the times.
func lines(t *testing.T, printed string) string {
	t.Helper()
	for l := range strings.Lines(printed) {
		if !stamp.MatchString(l) {
			t.Errorf("line %q does not begin with its time", l)
		}
	}
	return stamp.ReplaceAllString(printed, "")
}

func open(t *testing.T, console io.Writer, o Options) *Log {
	t.Helper()
	l, err := New("prog", o, console)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// run runs a control command.
func run(t *testing.T, l *Log, name string, args ...string) (string, error) {
	t.Helper()
	for _, c := range l.Commands() {
		if c.Name == name {
			return c.Run(args)
		}
	}
	t.Fatalf("no command %s", name)
	return "", nil
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLineFormat(t *testing.T) {
	var out bytes.Buffer
	l := open(t, &out, Options{Verbose: []string{"dbg"}})
	m := l.Module("watcher")
	m.WithField("pod", "default/web-0").Info("attached")
	m.WithFields(logrus.Fields{"zone": 7, "error": errors.New("no such node"), "a": "", "q": `x="y"`}).Warn("retrying")
	m.WithField("text", "two\nlines").Error("first\nsecond\x1b[31m\xff é 試\n")
	m.WithField("raw", []byte("abc")).Debug("d")
	m.Trace("t")
	m.WithField("error", (*os.PathError)(nil)).Info("a value that cannot print itself")
	want := `00001|watcher|INFO|attached pod=default/web-0
00002|watcher|WARN|retrying a="" error="no such node" q="x=\"y\"" zone=7
00003|watcher|ERR|first\nsecond\x1b[31m\xff é 試 text="two\nlines"
00004|watcher|DBG|d raw=abc
00005|watcher|DBG|t
00006|watcher|INFO|a value that cannot print itself error=<nil>
`
	if d := cmp.Diff(want, lines(t, out.String())); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestSecretsAreHidden(t *testing.T) {
	var out bytes.Buffer
	l := open(t, &out, Options{})
	l.Module("kube").WithFields(logrus.Fields{"token": "s3cret", "Authorization": "Basic s3cret", "k8s-api-token": []byte("s3cret"), "secret": "ns/name"}).Info("x")
	l.Module("kube").WithField("headers", map[string]string{"a": "Bearer s3cret.s3cret"}).Info("GET / Authorization: bearer s3cret")
	if strings.Contains(out.String(), "s3cret") || !strings.Contains(out.String(), "secret=ns/name") {
		t.Error(out.String())
	}
}

// The Python version stored only the last -v.
func TestEveryVerboseOptionCounts(t *testing.T) {
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "x.log")
	l := open(t, &out, Options{Verbose: []string{"file:dbg", "console:emer"}, LogFile: file})
	l.Module("watcher").Debug("detail")
	l.Module("watcher").Error("trouble")
	if out.Len() > 0 {
		t.Errorf("console: %q", out.String())
	}
	if d := cmp.Diff("00001|watcher|DBG|detail\n00002|watcher|ERR|trouble\n", lines(t, read(t, file))); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestModuleLevelsBeforeTheModuleExists(t *testing.T) {
	var out bytes.Buffer
	l := open(t, &out, Options{Verbose: []string{"NBSYNC:console:dbg", "warn", "kube:dbg"}})
	for _, m := range []string{"nbsync", "kube", "other"} {
		l.Module(m).Debug("d")
		l.Module(m).Info("i")
		l.Module(m).Warn("w")
	}
	want := "00001|nbsync|WARN|w\n00002|kube|DBG|d\n00003|kube|INFO|i\n00004|kube|WARN|w\n00005|other|WARN|w\n"
	if d := cmp.Diff(want, lines(t, out.String())); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Verbose: []string{"info", "file:inof"}}, `processing "file:inof": no destination, level, or module "inof" (a module takes a level, as in inof:dbg)`},
		{Options{Verbose: []string{"a:b"}}, `processing "a:b": no destination, level, or module "b"`},
		{Options{Verbose: []string{"dbg:info"}}, `processing "dbg:info": cannot specify multiple levels`},
		{Options{Verbose: []string{"pattern:file:%x"}}, `processing "pattern:file:%x": unknown escape %x in pattern`},
		{Options{LogFile: dir + "/no/x.log"}, "opening log file: open " + dir + "/no/x.log: no such file or directory"},
	} {
		_, err := New("prog", tt.o, io.Discard)
		if msg := errText(err); msg != tt.want {
			t.Errorf("%+v:\n got %s\nwant %s", tt.o, msg, tt.want)
		}
	}
}

func TestLogFileNames(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("OVS_LOGDIR", dir)
	for value, want := range map[string]string{
		defaultFile: dir + "/prog.log", "x.log": dir + "/x.log", "/tmp/y.log": "/tmp/y.log",
	} {
		if got := filePath("prog", value); got != want {
			t.Errorf("--log-file=%s: %s, want %s", value, got, want)
		}
	}
	t.Setenv("OVS_LOGDIR", "")
	if got := filePath("prog", defaultFile); got != "/var/log/openvswitch/prog.log" {
		t.Error(got)
	}
}

func TestSetWhileRunning(t *testing.T) {
	var out bytes.Buffer
	l := open(t, &out, Options{})
	w, k := l.Module("watcher"), l.Module("kube")
	say := func() string {
		out.Reset()
		w.Debug("d")
		w.Info("i")
		k.Debug("d")
		k.Info("i")
		return regexp.MustCompile(`\d+\|`).ReplaceAllString(lines(t, out.String()), "")
	}
	for _, tt := range []struct {
		args []string
		want string
		err  string
	}{
		{args: []string{"watcher:console:dbg"}, want: "watcher|DBG|d\nwatcher|INFO|i\nkube|INFO|i\n"},
		{args: []string{"warn"}, want: ""},
		{args: []string{"KUBE:dbg", "console:nosuch:dbg"}, want: "", err: `no destination, level, or module "nosuch"`},
		{args: []string{"file:dbg"}, want: ""},
		{args: nil, want: "watcher|DBG|d\nwatcher|INFO|i\nkube|DBG|d\nkube|INFO|i\n"},
		{args: []string{"watcher:off", "kube:info"}, want: "kube|INFO|i\n"},
	} {
		if _, err := run(t, l, "vlog/set", tt.args...); errText(err) != tt.err {
			t.Errorf("vlog/set %q: %v, want %q", tt.args, err, tt.err)
		}
		if d := cmp.Diff(tt.want, say()); d != "" {
			t.Errorf("after vlog/set %q (-want +got)\n%s", tt.args, d)
		}
	}
	l.Module("late").Info("i") // a new module has the level that "vlog/set" gave to all
	if !strings.Contains(out.String(), "|late|INFO|i\n") {
		t.Error(out.String())
	}
}

func TestLists(t *testing.T) {
	l := open(t, io.Discard, Options{Verbose: []string{"syslog:off", "console:emer"}})
	l.Module("watcher")
	l.Module("a_module_with_a_long_name")
	if _, err := run(t, l, "vlog/set", "watcher:file:dbg"); err != nil {
		t.Fatal(err)
	}
	// The columns are those of ovs-appctl vlog/list with Open vSwitch 3.1.
	want := `                 console    syslog    file
                 -------    ------    ------
a_module_with_a_long_name  EMER        OFF       INFO
watcher           EMER        OFF        DBG
`
	got, _ := run(t, l, "vlog/list")
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if _, err := run(t, l, "vlog/set", "pattern:console:%p %m"); err != nil {
		t.Fatal(err)
	}
	want = `destination  pattern
-----------  -------
console      %p %m
syslog       %05N|%c|%p|%m
file         %D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c|%p|%m
`
	got, _ = run(t, l, "vlog/list-pattern")
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestPattern(t *testing.T) {
	at := time.Date(2026, 3, 7, 4, 5, 6, 78_000_000, time.UTC)
	ln := line{
		time: at, seq: 42, module: "kube", level: Warn, message: "hello",
		program: &program{name: "prog", host: "node1", pid: 7, start: at.Add(-1500 * time.Millisecond)},
	}
	for pat, want := range map[string]string{
		DefaultPattern:                      "2026-03-07T04:05:06.078Z|00042|kube|WARN|hello",
		syslogPattern:                       "00042|kube|WARN|hello",
		"%A[%P]@%E %r ms %t%T":              "prog[7]@node1 1500 ms main",
		"%%%n%B":                            "%\n28",
		"<%-7p><%7p><%07N><%1m>":            "<WARN   ><   WARN><0000042><hello>",
		"%D":                                "2026-03-07 04:05:06",
		"%D{%e %b %y %j %p %I %a%%}":        " 7 Mar 26 066 AM 04 Sat%",
		"%D{%s.############ %F %T %Z %Q %}": "1772856306.078000000000 2026-03-07 04:05:06 UTC %Q %",
	} {
		p, err := parsePattern(pat)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := p.write(&b, ln); err != nil || b.String() != want+"\n" {
			t.Errorf("%s: %q, want %q", pat, b.String(), want)
		}
	}
	p, _ := parsePattern("%d{%H:%M}")
	var b strings.Builder
	if _ = p.write(&b, ln); b.String() != at.Local().Format("15:04\n") {
		t.Errorf("local time: %q", b.String())
	}
}

// logrotate renames the file and then runs vlog/reopen.
func TestReopenAfterRotation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.log")
	l := open(t, io.Discard, Options{LogFile: file})
	m := l.Module("watcher")
	m.Info("one")
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	m.Info("two")
	if _, err := run(t, l, "vlog/reopen"); err != nil {
		t.Fatal(err)
	}
	m.Info("three")
	if _, err := run(t, l, "vlog/close"); err != nil {
		t.Fatal(err)
	}
	m.Info("lost")
	if _, err := run(t, l, "vlog/close"); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if _, err := run(t, l, "vlog/reopen"); err != nil {
		t.Fatal(err)
	}
	m.Info("four")
	if d := cmp.Diff("00001|watcher|INFO|one\n00002|watcher|INFO|two\n", lines(t, read(t, file+".1"))); d != "" {
		t.Errorf("old file (-want +got)\n%s", d)
	}
	want := fmt.Sprintf("00003|vlog|INFO|opened log file %s\n00004|watcher|INFO|three\n00006|vlog|INFO|opened log file %[1]s\n00007|watcher|INFO|four\n", file)
	if d := cmp.Diff(want, lines(t, read(t, file))); d != "" {
		t.Errorf("new file (-want +got)\n%s", d)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("others can read the log: %v, %v", info.Mode(), err)
	}
}

func TestReopenThatFailsKeepsTheFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l := open(t, io.Discard, Options{LogFile: dir + "/x.log"})
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, l, "vlog/reopen"); err == nil || !strings.Contains(err.Error(), dir+"/x.log") {
		t.Errorf("error %v", err)
	}
	l.Module("watcher").Info("still here")
	if got := read(t, dir+".old/x.log"); !strings.Contains(got, "still here") {
		t.Error(got)
	}
}

func TestReopenWithoutFile(t *testing.T) {
	l := open(t, io.Discard, Options{})
	if _, err := run(t, l, "vlog/reopen"); errText(err) != "Logging to file not configured" {
		t.Error(err)
	}
}

func TestSyslog(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "log")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: sock, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := open(t, io.Discard, Options{})
	if l.syslog, err = syslog.Dial("unixgram", sock, syslog.LOG_DAEMON, "prog"); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, l, "vlog/set", "syslog:dbg"); err != nil {
		t.Fatal(err)
	}
	m := l.Module("watcher")
	m.Error("e")
	m.Warn("w")
	m.Info("i")
	m.Debug("d")
	want := []string{"<27>", "00001|watcher|ERR|e", "<28>", "00002|watcher|WARN|w", "<29>", "00003|watcher|INFO|i", "<31>", "00004|watcher|DBG|d"}
	for i := 0; i < len(want); i += 2 {
		buf := make([]byte, 1024)
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(buf[:n]); !strings.HasPrefix(got, want[i]) || !strings.HasSuffix(got, "]: "+want[i+1]+"\n") {
			t.Errorf("got %q, want %q", got, want[i:i+2])
		}
	}
}

func TestLogr(t *testing.T) {
	var out bytes.Buffer
	l := open(t, &out, Options{})
	g := l.Logr("libovsdb").WithName("client").WithValues("database", "OVN_Northbound", "module", "x")
	say := func() {
		g.Info("connected", "endpoint", "unix:/x y")
		for v := range 10 {
			g.V(v+1).Info("chatter", "v", v+1)
		}
		g.V(4).Error(errors.New("EOF"), "lost", "odd")
		g.Error(nil, "odd")
	}
	say()
	want := `00001|libovsdb|INFO|client: connected database=OVN_Northbound endpoint="unix:/x y" logger-module=x
00002|libovsdb|WARN|client: lost database=OVN_Northbound error=EOF logger-module=x odd=(missing)
00003|libovsdb|WARN|client: odd database=OVN_Northbound logger-module=x
`
	if d := cmp.Diff(want, lines(t, out.String())); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if g.V(1).Enabled() {
		t.Error("V(1) is enabled at info")
	}
	if _, err := run(t, l, "vlog/set", "libovsdb:dbg"); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	say()
	if n := strings.Count(out.String(), "|libovsdb|DBG|client: chatter"); n != 10 {
		t.Errorf("%d of 10 chatter lines at dbg:\n%s", n, out.String())
	}
}

// A component given a module can make its own logr of it.
func TestLogrusr(t *testing.T) {
	var out bytes.Buffer
	l := open(t, &out, Options{})
	g := logrusr.New(l.Module("ovsdb"))
	say := func() {
		g.Info("connected")
		g.V(1).Info("v1")
		g.V(5).Info("v5")
	}
	say()
	if _, err := run(t, l, "vlog/set", "dbg"); err != nil {
		t.Fatal(err)
	}
	say()
	want := "00001|ovsdb|INFO|connected\n00002|ovsdb|INFO|connected\n00003|ovsdb|DBG|v1\n00004|ovsdb|DBG|v5\n"
	if d := cmp.Diff(want, lines(t, out.String())); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestKlog(t *testing.T) {
	var out bytes.Buffer
	l := open(t, &out, Options{})
	l.TakeKlog()
	say := func() string {
		out.Reset()
		klog.Infof("watching %s\n", "pods")
		klog.ErrorS(errors.New("refused"), "Failed to list", "kind", "Pod")
		klog.V(4).InfoS("Caches populated", "type", "*v1.Pod")
		klog.FromContext(context.Background()).V(2).Info("contextual")
		klog.V(9).Info("bodies")
		return regexp.MustCompile(`\d+\|`).ReplaceAllString(lines(t, out.String()), "")
	}
	quiet := "client-go|INFO|watching pods\nclient-go|WARN|Failed to list error=refused kind=Pod\n"
	if d := cmp.Diff(quiet, say()); d != "" {
		t.Errorf("at info (-want +got)\n%s", d)
	}
	if klog.V(1).Enabled() {
		t.Error("klog does work for lines that nobody sees")
	}
	if _, err := run(t, l, "vlog/set", "client-go:dbg"); err != nil {
		t.Fatal(err)
	}
	quiet = strings.ReplaceAll(quiet, "WARN", "DBG") // the error was already logged
	if d := cmp.Diff(quiet+"client-go|DBG|Caches populated type=*v1.Pod\nclient-go|DBG|contextual\n", say()); d != "" {
		t.Errorf("at dbg (-want +got)\n%s", d)
	}
	if _, err := run(t, l, "vlog/set", "info"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("client-go|INFO|watching pods\n", say()); d != "" {
		t.Errorf("at info again (-want +got)\n%s", d)
	}
}

// A retry has another local port, and is no news.
func TestRepeatedErrorsOfOtherPorts(t *testing.T) {
	var out bytes.Buffer
	l := open(t, &out, Options{})
	l.TakeKlog()
	for port := range 3 {
		klog.ErrorS(fmt.Errorf("read tcp 192.0.2.2:%d->192.0.2.1:6443: connection reset by peer", 40000+port), "Error retrieving lease lock")
	}
	if n := strings.Count(out.String(), "|WARN|"); n != 1 {
		t.Errorf("%d warnings: %s", n, &out)
	}
}

func TestConcurrentUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.log")
	l := open(t, nil, Options{LogFile: file})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				l.Module(fmt.Sprintf("m%d", (i+j)%5)).WithField("j", j).Info("x")
				_, _ = run(t, l, "vlog/set", "m1:dbg")
				_, _ = run(t, l, "vlog/list")
				_, _ = run(t, l, "vlog/reopen")
			}
		})
	}
	wg.Wait()
	got := read(t, file)
	lines(t, got)
	if n := strings.Count(got, "|INFO|x j="); n != 400 {
		t.Errorf("%d lines of 400", n)
	}
}

// S9: the log directory may belong to another account, as on Red Hat to openvswitch.
func TestALinkIsNoLogFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(dir+"/precious", dir+"/x.log"); err != nil {
		t.Fatal(err)
	}
	_, err := New("x", Options{LogFile: dir + "/x.log"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "opening log file: open "+dir+"/x.log: too many levels of symbolic links") {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(dir + "/precious"); err == nil {
		t.Error("the link was followed")
	}
}
