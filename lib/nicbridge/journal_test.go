package nicbridge

import (
	"os"
	"testing"
)

func TestUnfinishedJournalsGoWithTheNextRun(t *testing.T) {
	st := store{t.TempDir()}
	if err := st.write(journal{Snapshot: Snapshot{Bridge: "breth0"}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(st.dir+"/"+unfinished+"123", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	unlock, err := st.lock()
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	entries, err := os.ReadDir(st.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if len(names) != 2 || names[0] != "breth0.json" || names[1] != "lock" {
		t.Errorf("there are %q", names)
	}
}
