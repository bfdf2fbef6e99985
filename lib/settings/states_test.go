package settings_test

import (
	"slices"
	"testing"

	"ovn-k8s/lib/settings"
)

// A part that serves does not hide another one that waits.
func TestStates(t *testing.T) {
	var shown []string
	s := settings.NewStates(func(line string) { shown = append(shown, line) })
	for _, set := range [][2]string{
		{"", "waiting: no switch"}, {"node", settings.Serving}, {"node", "waiting: no Node"}, {"gateway", settings.Serving},
		{"gateway", "waiting: no nft\nand more"}, {"node", settings.Serving}, {"gateway", settings.Serving},
	} {
		s.Set(set[0], set[1])
	}
	want := []string{"waiting: no switch", "serving", "node: waiting: no Node", "gateway: waiting: no nft; node: waiting: no Node",
		"gateway: waiting: no nft", "serving"}
	if !slices.Equal(shown, want) {
		t.Errorf("shown: %q, want %q", shown, want)
	}
}
