// Package debian finds Debian's packages.
package debian

import (
	"context"
	"os/exec"
	"strings"
)

// mirror is the package source if apt has none of Debian.
const mirror = "http://deb.debian.org/debian"

// Source returns the URL of Debian's packages that this machine's apt uses.
func Source(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)",
		"Created-By: Packages", "Origin: Debian", "Component: main").Output()
	if err == nil {
		for uri := range strings.FieldsSeq(string(out)) {
			if !strings.Contains(uri, "security") {
				return uri
			}
		}
	}
	return mirror
}
