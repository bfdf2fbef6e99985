package link

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"ovn-k8s/test/namespace"
)

// As a user, and as root without the capability, a process may not change interfaces.
func TestNeedRoot(t *testing.T) {
	if os.Getenv(tried) != "" {
		if err := NeedRoot(); err != nil {
			t.Fatal(err)
		}
		return
	}
	namespace.Enter(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ args, want string }{
		{"--no-new-privs", ""},
		{"--bounding-set=-net_admin --inh-caps=-net_admin", "this needs the capability CAP_NET_ADMIN"},
		{"--reuid=65534 --clear-groups", "this needs root: it works on interfaces"},
	} {
		args := append(strings.Fields(tt.args), "/proc/self/fd/3", "-test.run=^TestNeedRoot$")
		cmd := exec.Command("setpriv", args...)
		program, err := os.Open(self) // its directory may be closed to others
		if err != nil {
			t.Fatal(err)
		}
		defer program.Close()
		cmd.ExtraFiles, cmd.Env = []*os.File{program}, append(os.Environ(), tried+"=1")
		out, err := cmd.CombinedOutput()
		if (err == nil) != (tt.want == "") || !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: %v, %s", tt.args, err, out)
		}
	}
}

const tried = "OVNK8S_TEST_NEED_ROOT"
