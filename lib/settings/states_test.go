package settings_test

import (
	"slices"
	"testing"

	"ovn-k8s/lib/settings"
)

// A part without a report is not taken for a serving one, and is no news by itself.
func TestPartsThatStart(t *testing.T) {
	for _, tt := range []struct {
		before string
		want   []string
	}{
		{"", []string{"gateway: starting; node: waiting: no Node", "node: waiting: no Node", "serving"}},
		{"waiting: no switch", []string{"waiting: no switch", "gateway: starting; master: starting; node: starting", "gateway: starting; node: starting",
			"gateway: starting; node: waiting: no Node", "node: waiting: no Node", "serving"}},
	} {
		var shown []string
		s := settings.NewStates(func(line string) { shown = append(shown, line) })
		if tt.before != "" {
			s.Set("", tt.before)
		}
		s.Start("gateway", "master", "node")
		for _, set := range [][2]string{{"master", settings.Serving}, {"node", "waiting: no Node"}, {"gateway", settings.Serving}, {"node", settings.Serving}} {
			s.Set(set[0], set[1])
		}
		if !slices.Equal(shown, tt.want) {
			t.Errorf("after %q: %q, want %q", tt.before, shown, tt.want)
		}
	}
}

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
