package ovntest_test

import (
	"os"
	"strings"
	"testing"

	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

func start(t *testing.T, o ovntest.Options) *ovntest.Central {
	t.Helper()
	require.Nothing(t, require.Central, ovntest.Missing())
	c, err := ovntest.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func do(t *testing.T, steps ...func() error) {
	t.Helper()
	for i, step := range steps {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
}

func nbctl(t *testing.T, c *ovntest.Central, args ...string) string {
	t.Helper()
	out, err := c.NBCtl(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTrace(t *testing.T) {
	c := start(t, ovntest.Options{})
	nbctl(t, c, "ls-add", "sw", "--", "lsp-add", "sw", "a", "--", "lsp-add", "sw", "b",
		"--", "lsp-set-addresses", "a", "0a:00:00:00:00:01", "--", "lsp-set-addresses", "b", "0a:00:00:00:00:02")
	do(t, c.Sync)
	for dst, want := range map[string]string{"0a:00:00:00:00:02": "b", "0a:00:00:00:00:03": "drop"} {
		got, err := c.Trace("sw", `inport == "a" && eth.src == 0a:00:00:00:00:01 && eth.dst == `+dst)
		if err != nil || got != want {
			t.Errorf("Trace to %s = %q, %v, want %q", dst, got, err, want)
		}
	}
}

func TestNBTransactionsCountsOthersThanNorthd(t *testing.T) {
	c := start(t, ovntest.Options{})
	before, err := c.NBTransactions()
	if err != nil {
		t.Fatal(err)
	}
	nbctl(t, c, "--wait=sb", "ls-add", "a")
	nbctl(t, c, "ls-add", "b", "--", "ls-add", "c")
	after, err := c.NBTransactions()
	if err != nil {
		t.Fatal(err)
	}
	if after-before != 2 {
		t.Errorf("%d transactions, want 2", after-before)
	}
	records, err := c.NBRecords()
	if err != nil {
		t.Fatal(err)
	}
	if last := records[len(records)-1]; last.Rows["Logical_Switch"] != 2 || last.Time.IsZero() || !strings.Contains(last.Comment, "ls-add b") {
		t.Errorf("last record: %+v", last)
	}
}

func TestNBSurvivesKillButNotEmptying(t *testing.T) {
	c := start(t, ovntest.Options{Listen: "127.0.0.1"})
	nbctl(t, c, "ls-add", "a")
	c.StopNB()
	if _, err := c.NBCtl("--no-wait", "--timeout=1", "show"); err == nil {
		t.Fatal("the killed database answers")
	}
	do(t, c.StartNB)
	if out := nbctl(t, c, "--db="+c.NBTCP, "--bare", "--columns=name", "list", "Logical_Switch"); out != "a" {
		t.Errorf("switches after a restart: %q, want a", out)
	}
	do(t, c.StartEmptyNB)
	if out := nbctl(t, c, "--bare", "--columns=name", "list", "Logical_Switch"); out != "" {
		t.Errorf("switches after emptying: %q, want none", out)
	}
	c.StopNorthd()
	do(t, c.StartNorthd, c.Sync)
}

func TestStartNamesTheCulprit(t *testing.T) {
	require.Nothing(t, require.Central, ovntest.Missing())
	dir := t.TempDir()
	_, err := ovntest.Start(ovntest.Options{Dir: dir, NBArgs: []string{"--nonsense"}})
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("Start: %v, want an error that names the bad argument", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory remains: %v", err)
	}
}
