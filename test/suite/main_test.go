package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// once is a function for the tests below: it is true the first time.
const once = `
func once() bool {
	if _, err := os.Stat("once"); err == nil {
		return false
	}
	return os.WriteFile("once", nil, 0o644) == nil
}
`

// Each module is run by the real gotestsum and the real go test.
func TestAFailureCountsWhenItRepeats(t *testing.T) {
	gotestsum, err := tool()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		code, output, err string
	}{
		"all pass":       {`func TestA(t *testing.T) {}`, "DONE 1 tests", ""},
		"fails once":     {`func TestA(t *testing.T) { if once() { t.Error("unlucky") } }`, "*** passed only the second time: m.TestA\n", ""},
		"a part of it":   {`func TestA(t *testing.T) { t.Run("b c", func(t *testing.T) { if once() { t.Error("unlucky") } }) }`, "*** passed only the second time: m.TestA\n", ""},
		"always fails":   {`func TestA(t *testing.T) { t.Error("wrong") }`, "wrong", "exit status 1"},
		"cannot build":   {`func TestA(t *testing.T) { missing() }`, "undefined: missing", "exit status 3"},
		"set-up fails":   {`func TestMain(m *testing.M) { if once() { os.Exit(1) }; m.Run() }; func TestA(t *testing.T) { t.Error("not run") }`, "", "failed outside of its tests: m"},
		"a test ends it": {`func TestA(t *testing.T) { if once() { os.Exit(3) } }; func TestB(t *testing.T) { t.Error("not run") }`, "", "failed outside of its tests: m"},
		"too many":       {`func Test1(t *testing.T) { t.Fail() }; func Test2(t *testing.T) { t.Fail() }; func Test3(t *testing.T) { t.Fail() }; func Test4(t *testing.T) { t.Fail() }; func Test5(t *testing.T) { t.Fail() }`, "exceeds maximum (4)", "exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{
				"go.mod":    "module m\n\ngo 1.26.0\n",
				"m_test.go": "package m\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n" + once + tt.code,
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			err := run(gotestsum, dir, &out, "", 2, []string{"./..."})
			if !strings.Contains(out.String(), tt.output) || (tt.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q; output, want %q:\n%s", err, tt.err, tt.output, &out)
			}
		})
	}
}
