package overlay

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// pluginType is the plugin's type in the CNI configuration: a file name in the directory of plugins.
	pluginType = "ovn-k8s-cni-overlay"
	// oldPluginType is the type in the Python era.
	oldPluginType = "ovn_cni"
	// conflist is the name of the CNI configuration. Runtimes take the first file
	// of the directory in alphabetical order.
	conflist = "10-ovn-k8s.conflist"
)

// A cniSetup is the path of the plugin.
type cniSetup struct{ plugin string }

// findPlugin looks for the plugin at its path, on PATH, or in the directory of CNI plugins.
func (s *session) findPlugin() (cniSetup, error) {
	name := s.config.CNIPlugin
	candidates := []string{name}
	if !filepath.IsAbs(name) {
		candidates = nil
		for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), s.config.CNIBinDir) {
			if filepath.IsAbs(dir) {
				candidates = append(candidates, filepath.Join(dir, name))
			}
		}
	}
	for _, path := range candidates {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		if filepath.Dir(path) == s.config.CNIBinDir { // perhaps a link of an earlier release
			path, err = filepath.EvalSymlinks(path)
		}
		if err == nil {
			return cniSetup{path}, nil
		}
	}
	//lint:ignore ST1005 the original's text
	return cniSetup{}, fmt.Errorf("No CNI plugin %s found", name)
}

// configureCNI returns the edits by which a container runtime finds the plugin. The configuration comes last: once
// it exists, the kubelet starts pods.
func (s *session) configureCNI(setup cniSetup) ([]edit, error) {
	programs, err := s.pluginFiles(setup)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.config.CNIConfDir, conflist)
	earlier, err := earlierConfigurations(path)
	if err != nil {
		return nil, err
	}
	for _, other := range earlier {
		s.warn("container runtimes will use %s instead of %s, since it comes first in the alphabet: remove it", other, path)
	}
	return pending(append(programs, edit{path: path, text: configuration()}))
}

// pluginFiles returns a copy of the plugin, and a link to the copy with the old name. Runtimes may see the
// directory only, in a mount namespace of their own, so the link stays inside of it. A file with another program
// stays.
func (s *session) pluginFiles(setup cniSetup) ([]edit, error) {
	var edits []edit
	for _, e := range []edit{
		{path: filepath.Join(s.config.CNIBinDir, pluginType), copy: setup.plugin},
		{path: filepath.Join(s.config.CNIBinDir, oldPluginType), link: pluginType},
	} {
		info, err := os.Lstat(e.path)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("looking at %s: %w", e.path, err)
		case err == nil && info.IsDir():
			return nil, fmt.Errorf("%s is a directory: the CNI plugin has to be there", e.path)
		case e.path == setup.plugin: // installed there by hand
		case err == nil && info.Mode().IsRegular() && !isOurPlugin(e.path, setup):
			s.warn("%s is a file of its own: container runtimes use that and not %s", e.path, setup.plugin)
		default:
			edits = append(edits, e)
		}
	}
	return edits, nil
}

// isOurPlugin reports whether a file is a copy of the plugin, of this or another release, by its Go build
// information.
func isOurPlugin(path string, setup cniSetup) bool {
	is, err := buildinfo.ReadFile(path)
	want, err2 := buildinfo.ReadFile(setup.plugin)
	return errors.Join(err, err2) == nil && is.Path == want.Path
}

// configuration is the CNI configuration (CNI specification 1.1.0, section 1). It names no capability, because the
// plugin reads everything about a pod from the pod. All supported releases of container runtimes know the version;
// those with support for the list choose the newest one known to them.
func configuration() string {
	text, err := json.MarshalIndent(struct {
		CNIVersion  string              `json:"cniVersion"`
		CNIVersions []string            `json:"cniVersions"`
		Name        string              `json:"name"`
		Plugins     []map[string]string `json:"plugins"`
	}{"1.0.0", []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}, "ovn-k8s", []map[string]string{{"type": pluginType}}}, "", "  ")
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(text) + "\n"
}

// earlierConfigurations lists the CNI configurations sorted before the one at path; runtimes use the first
// (libcni.ConfFiles sorts them by name).
func earlierConfigurations(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the CNI configurations: %w", err)
	}
	var earlier []string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if !e.IsDir() && slices.Contains([]string{".conf", ".conflist", ".json"}, ext) && strings.Compare(e.Name(), filepath.Base(path)) < 0 {
			earlier = append(earlier, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return earlier, nil
}
