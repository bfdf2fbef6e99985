package e2e

import (
	"slices"
	"strings"
	"testing"

	"ovn-k8s/docs"
	"ovn-k8s/test/world"
)

// A cell of a table is identified by the names of its row and column.
type cell struct{ row, column string }

// cells reads the first table of docs/services.md after a text. The first keys
// columns name a row; cells of the other columns are lists of words.
func cells(t *testing.T, after string, keys int) map[cell][]string {
	t.Helper()
	page, err := docs.Files.ReadFile("services.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), after)
	_, text, _ = strings.Cut(text, "\n|")
	text, _, _ = strings.Cut(text, "\n\n")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if !found || len(lines) < 3 {
		t.Fatalf("docs/services.md has no table after %q", after)
	}
	titles := words(lines[0], "|")
	all := map[cell][]string{}
	for _, l := range lines[2:] {
		fields := words(strings.TrimPrefix(l, "|"), "|")
		for i, field := range fields {
			if i >= keys && field != "" {
				all[cell{strings.Join(fields[:keys], ", "), titles[i]}] = words(field, ",")
			}
		}
	}
	return all
}

// words splits a text and trims the parts.
func words(text, separator string) (out []string) {
	for _, w := range strings.Split(text, separator) {
		out = append(out, strings.TrimSpace(w))
	}
	return out
}

// compareCells checks that each backend saw a client address listed in the cell of
// its Attempt, and that each cell was tested.
func compareCells(t *testing.T, table map[cell][]string, attempts []world.Attempt, at func(world.Attempt) cell) {
	t.Helper()
	tried := map[cell]bool{}
	for _, w := range attempts {
		c := at(w)
		tried[c] = true
		if saw := w.Names[w.SeenAs]; w.Err == nil && !slices.Contains(table[c], saw) {
			t.Errorf("%v: the backend saw %v (%s), docs/services.md says %q for %q by %q", w, w.SeenAs, saw, table[c], c.row, c.column)
		}
	}
	for c, says := range table {
		if !tried[c] {
			t.Errorf("docs/services.md says %q for %q by %q, which was not tried", says, c.row, c.column)
		}
	}
}
