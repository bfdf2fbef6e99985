package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// checkNumber matches the number of a check of ovnkube, such as that in "AC-41: pods leave by their node's gateway".
var checkNumber = regexp.MustCompile(`\bAC-[0-9]+\b`)

// TestChecksOfOVNKube demands a test, or a case of test data, that names each check of ovnkube.
func TestChecksOfOVNKube(t *testing.T) {
	named := map[string]bool{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !isTest(name) {
			return err
		}
		text, err := os.ReadFile(name)
		for _, number := range checkNumber.FindAllString(string(text), -1) {
			named[number] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, numbers := range [][2]int{{1, 94}, {101, 108}} { // the others are about containers
		for i := numbers[0]; i <= numbers[1]; i++ {
			if number := fmt.Sprintf("AC-%02d", i); !named[number] && i != idling {
				t.Errorf("no test names %s", number)
			}
		}
	}
}

// idling is the check of events about Services without endpoints: this project has none.
const idling = 79

func isTest(name string) bool {
	return strings.HasSuffix(name, "_test.go") && filepath.Base(name) != "checks_test.go" || strings.Contains(name, "/testdata/") && strings.HasSuffix(name, ".yaml")
}
