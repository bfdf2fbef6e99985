package tracking

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Limits are raised to kube-proxy's, and never lowered. Missing and read-only ones stay.
func TestRaise(t *testing.T) {
	all := limits()
	for name, tt := range map[string]struct {
		have    map[string]int
		mode    os.FileMode
		want    map[string]int
		changes int
	}{
		"the kernel's":     {map[string]int{all[0].name: 4096, all[1].name: 60}, 0o644, map[string]int{all[0].name: all[0].low, all[1].name: 3600}, 2},
		"the operator's":   {map[string]int{all[0].name: all[0].low + 1, all[1].name: 7200}, 0o644, map[string]int{all[0].name: all[0].low + 1, all[1].name: 7200}, 0},
		"no limit":         {map[string]int{all[0].name: 0}, 0o644, map[string]int{all[0].name: 0}, 0},
		"read-only":        {map[string]int{all[0].name: 4096}, 0o444, map[string]int{all[0].name: 4096}, 0},
		"no nf_conntrack":  {nil, 0o644, nil, 0},
		"of one, the time": {map[string]int{all[1].name: 60}, 0o644, map[string]int{all[1].name: 3600}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, value := range tt.have {
				if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendln(nil, value), tt.mode); err != nil {
					t.Fatal(err)
				}
			}
			changes, err := Raise(dir)
			if err != nil || len(changes) != tt.changes {
				t.Errorf("changes %q, %v", changes, err)
			}
			if again, err := Raise(dir); len(again) > 0 || err != nil {
				t.Errorf("a second time: %q, %v", again, err)
			}
			for name, want := range tt.want {
				text, _ := os.ReadFile(filepath.Join(dir, name))
				var got int
				if _, err := fmt.Sscan(string(text), &got); err != nil || got != want {
					t.Errorf("%s: %q, want %d", name, text, want)
				}
			}
		})
	}
	if all[0].low < 131072 {
		t.Errorf("nf_conntrack_max: %d", all[0].low)
	}
}
