package kubetest

import (
	"os"
	"testing"
)

// A control plane is started once more if its etcd lost a port to another process.
func TestATakenPortOfEtcd(t *testing.T) {
	dir := t.TempDir()
	const program = `#!/bin/sh
		echo start >>"$1/starts"
		if [ $(wc -l <"$1/starts") -lt $2 ]; then
			echo "kcluster: starting etcd: listen tcp 127.0.0.1:36555: bind: address already in use" >&2
			exit 1
		fi
		echo '{"url": "https://127.0.0.1:1"}'
		read line
`
	if err := os.WriteFile(dir+"/kcluster", []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Dir: dir, args: []string{dir + "/kcluster", dir, "2"}}
	defer c.Close()
	if err := c.Restart(t.Context()); err != nil || c.URL != "https://127.0.0.1:1" {
		t.Errorf("%v, at %q", err, c.URL)
	}
	c.args[2] = "5"
	if err := c.Restart(t.Context()); err == nil {
		t.Error("a port that is always taken is no error")
	}
}
