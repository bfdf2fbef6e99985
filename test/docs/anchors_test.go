package docs_test

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"ovn-k8s/docs"
)

var (
	anchored = regexp.MustCompile(`\]\(([\w./-]*)#([^)]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped  = regexp.MustCompile(`[^\w\- ]`)
)

// anchors are the names of a page's headings in links, as GitHub makes them.
func (p page) anchors() map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(docs.Prose(p.text), -1) {
		all[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return all
}

// TestAnchors checks that each link to a part of a page finds its heading.
func TestAnchors(t *testing.T) {
	anchors := map[string]map[string]bool{}
	all := pages(t)
	for _, p := range all {
		anchors[p.name] = p.anchors()
	}
	for _, p := range all {
		for _, m := range anchored.FindAllStringSubmatch(p.text, -1) {
			to := p.name
			if m[1] != "" {
				to = path.Join(path.Dir(p.name), m[1])
			}
			if path.Ext(to) == ".md" && !anchors[to][m[2]] {
				t.Errorf("%s links to %s#%s, which does not exist", p.name, to, m[2])
			}
		}
	}
}
