// Package docs is the documentation as files, so that tests can hold it to what
// it says: they parse its commands, load its YAML, and build clusters with it.
package docs

import "embed"

// Files are the pages, manifests and units of this directory.
//
//go:embed *.md *.yaml systemd
var Files embed.FS
