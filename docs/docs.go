// Package docs is the documentation as files, so that tests can prove it: they
// parse and run its commands, load its YAML, and build clusters
// with it.
package docs

import (
	"embed"
	"regexp"
)

// Files are the pages, manifests and units of this directory.
//
//go:embed *.md *.yaml systemd
var Files embed.FS

// A Block is a fenced part of a page.
type Block struct{ Language, Text string }

var fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// Blocks lists the fenced parts of a page.
func Blocks(page string) []Block {
	var all []Block
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		all = append(all, Block{m[1], m[2]})
	}
	return all
}

// Prose is a page without its fenced parts.
func Prose(page string) string { return fence.ReplaceAllString(page, "") }
