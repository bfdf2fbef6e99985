// Package cnisetup gives container runtimes the CNI plugin and its configuration.
package cnisetup

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

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/overlay/files"
)

const (
	// pluginType is the plugin's type in the CNI configuration: a file name in the directory of plugins.
	pluginType = "ovn-k8s-cni-overlay"
	// oldPluginType is the type in the Python era.
	oldPluginType = "ovn_cni"
	// conflist is the name of the CNI configuration. Runtimes take the first file
	// of the directory in alphabetical order.
	conflist = "10-ovn-k8s.conflist"
	// shim is the plugin that hands requests to ovnkube, with the configuration shimConflist. oldShimConflist is the name
	// of former releases.
	shim            = "ovn-k8s-cni-shim"
	shimConflist    = "10-ovn-kubernetes.conflist"
	oldShimConflist = "10-ovn-kubernetes.conf"
)

// A Setup is the plugin and the directories of container runtimes.
type Setup struct {
	plugin          string // a path, or empty if the plugin was not found
	binDir, confDir string

	pluginType, oldType string   // file names of the plugin, the second a link; "": none
	conflist, network   string   // file name of the configuration, and the name in it
	replaces            []string // file names of former configurations of ours
}

// Find looks for the plugin at its path, or on PATH, beside this program and in the directory of CNI plugins. The Setup is
// good for Remove without a plugin, too.
func Find(c config.Config) (Setup, error) {
	s := Setup{binDir: c.CNIBinDir, confDir: c.CNIConfDir, pluginType: pluginType, oldType: oldPluginType, conflist: conflist, network: "ovn-k8s"}
	err := s.find(c.CNIPlugin)
	if err != nil {
		err = fmt.Errorf("%w: install it, or set external_ids:ovn-k8s-cni-plugin to its path", err)
	}
	return s, err
}

// FindShim is Find for ovnkube: its plugin is installed with the type of the setting. A plugin installed as that before,
// by hand or in an image, serves too.
func FindShim(c config.Config) (Setup, error) {
	s := Setup{
		binDir: c.CNIBinDir, confDir: c.CNIConfDir, pluginType: filepath.Base(c.CNIPlugin), conflist: shimConflist, network: "ovn-kubernetes",
		replaces: []string{conflist, oldShimConflist},
	}
	err := s.find(shim)
	if err != nil && s.find(filepath.Join(s.binDir, s.pluginType)) == nil {
		return s, nil
	}
	return s, err
}

// find sets the plugin of s.
func (s *Setup) find(name string) error {
	candidates, where := []string{name}, ""
	if !filepath.IsAbs(name) {
		dirs := s.dirs()
		candidates, where = nil, " in "+strings.Join(dirs, ", ")
		for _, dir := range dirs {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, path := range candidates {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		if filepath.Dir(path) == s.binDir { // perhaps a link of an earlier release
			path, err = filepath.EvalSymlinks(path)
		}
		if err == nil {
			s.plugin = path
			return nil
		}
	}
	//lint:ignore ST1005 the original's text
	return fmt.Errorf("No CNI plugin %s found%s", name, where)
}

// dirs are the directories in which to look for the plugin. sudo may leave that of this program out of PATH.
func (s *Setup) dirs() (all []string) {
	program, _ := os.Executable() // without it, the others remain
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), filepath.Dir(program), s.binDir) {
		if filepath.IsAbs(dir) && !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	return all
}

// Configure returns the edits by which a container runtime finds the plugin, and warnings. The configuration comes after the
// plugin: once it exists, the kubelet starts pods. Former configurations go last, so that there always is one.
func (s Setup) Configure() (edits []files.Edit, warnings []string, err error) {
	edits, warnings, err = s.programs()
	if err != nil {
		return nil, nil, err
	}
	earlier, err := earlierConfigurations(s.path())
	if err != nil {
		return nil, nil, err
	}
	for _, other := range earlier {
		if slices.Contains(s.replaces, filepath.Base(other)) {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("container runtimes will use %s instead of %s, since it comes first in the alphabet: remove it", other, s.path()))
	}
	edits = append(edits, files.Edit{Path: s.path(), Text: s.configuration()})
	for _, name := range s.replaces {
		edits = append(edits, files.Edit{Path: filepath.Join(s.confDir, name), Gone: true})
	}
	edits, err = files.Pending(edits)
	return edits, warnings, err
}

// Configured reports whether the configuration is as Configure wrote it, and the plugin is there. It does not compare the
// plugin itself.
func (s Setup) Configured() (bool, error) {
	info, err := os.Stat(filepath.Join(s.binDir, s.pluginType))
	if err != nil || !info.Mode().IsRegular() {
		return false, nil // Configure reports the error
	}
	edits, err := files.Pending([]files.Edit{{Path: s.path(), Text: s.configuration()}})
	return len(edits) == 0, err
}

// path is the path of the configuration.
func (s Setup) path() string { return filepath.Join(s.confDir, s.conflist) }

// programs returns a copy of the plugin, and a link to the copy with the old name. Runtimes may see the directory
// only, in a mount namespace of their own, so the link stays inside of it. A file with another program stays.
func (s Setup) programs() (edits []files.Edit, warnings []string, err error) {
	wanted := []files.Edit{{Path: filepath.Join(s.binDir, s.pluginType), Copy: s.plugin}}
	if s.oldType != "" {
		wanted = append(wanted, files.Edit{Path: filepath.Join(s.binDir, s.oldType), Link: s.pluginType})
	}
	for _, e := range wanted {
		info, err := os.Lstat(e.Path)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, nil, fmt.Errorf("looking at %s: %w", e.Path, err)
		case err == nil && info.IsDir():
			return nil, nil, fmt.Errorf("%s is a directory: the CNI plugin has to be there", e.Path)
		case e.Path == s.plugin: // installed there by hand
		case err == nil && info.Mode().IsRegular() && !s.isOurs(e.Path):
			warnings = append(warnings, fmt.Sprintf("%s is a file of its own: container runtimes use that and not %s", e.Path, s.plugin))
		default:
			edits = append(edits, e)
		}
	}
	return edits, warnings, nil
}

// Disable returns the edit to remove the configuration, if it is there.
func (s Setup) Disable() ([]files.Edit, error) {
	return files.Pending([]files.Edit{{Path: s.path(), Gone: true}})
}

// Remove returns the edits to remove links to the plugin and copies of it. The only copy stays.
func (s Setup) Remove() ([]files.Edit, error) {
	var edits []files.Edit
	for _, name := range []string{s.oldType, s.pluginType} {
		if name == "" {
			continue
		}
		path := filepath.Join(s.binDir, name)
		info, err := os.Lstat(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("looking at %s: %w", path, err)
		}
		link := err == nil && info.Mode()&fs.ModeSymlink != 0
		if link || err == nil && s.plugin != "" && path != s.plugin && s.isOurs(path) {
			edits = append(edits, files.Edit{Path: path, Gone: true})
		}
	}
	return edits, nil
}

// isOurs reports whether a file is a copy of the plugin, of this or another release, by its Go build
// information. ovnkube's plugin and the one that needs no ovnkube replace each other.
func (s Setup) isOurs(path string) bool {
	is, err := buildinfo.ReadFile(path)
	want, err2 := buildinfo.ReadFile(s.plugin)
	if errors.Join(err, err2) != nil {
		return false
	}
	both := func(i *buildinfo.BuildInfo) bool {
		return strings.HasSuffix(i.Path, "/"+shim) || strings.HasSuffix(i.Path, "/"+pluginType)
	}
	return is.Path == want.Path || both(is) && both(want)
}

// configuration is the CNI configuration (CNI specification 1.1.0, section 1). It names no capability, because the
// plugin reads everything about a pod from the pod. All supported releases of container runtimes know the version;
// those with support for the list choose the newest one known to them.
//
// Runtimes do not call CHECK. CRI-O would call it for each pod when it starts, one after another, before it serves. A failure,
// as without the result of a former network or while Open vSwitch restarts, makes the kubelet replace the pod.
func (s Setup) configuration() string {
	text, err := json.MarshalIndent(struct {
		CNIVersion   string              `json:"cniVersion"`
		CNIVersions  []string            `json:"cniVersions"`
		Name         string              `json:"name"`
		DisableCheck bool                `json:"disableCheck"`
		Plugins      []map[string]string `json:"plugins"`
	}{"1.0.0", []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}, s.network, true, []map[string]string{{"type": s.pluginType}}}, "", "  ")
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
