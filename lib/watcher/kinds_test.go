package watcher

import (
	"slices"
	"testing"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/kube"
)

// T10: an engine waits for each kind of objects before it writes, and its World
// takes each of them.
func TestEachKindIsWaitedFor(t *testing.T) {
	e := (&Watcher{}).newEngine(&connections{}, nil)
	for _, k := range kube.Kinds() {
		if !e.may.Missing[k.Name] {
			t.Errorf("rows of %s would be deleted at a start", k.Name)
		}
		w := desired.NewWorld()
		w.Put(k.Object)
		w.Replace(k.Object, slices.Values([]any{k.Object}))
		w.Remove(k.Object)
	}
	if len(e.may.Missing) != len(kube.Kinds())+1 {
		t.Errorf("waiting for %v", e.may.Missing)
	}
}
