package cnisetup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/overlay/files"
	"ovn-k8s/lib/platform"
)

// ConfDirID is the key of external_ids with the directory of the CNI configuration. It is a setting, too. ovnkube writes it, and
// the record names.CNIFiles, before the files, so that a clean-up finds them without the settings.
const ConfDirID = "ovn-k8s-cni-conf-path"

// paths are those of the configuration and of the plugin.
func (s Setup) paths() []string { return []string{s.path(), filepath.Join(s.binDir, s.pluginType)} }

// usual are the paths of FindShim without any setting.
func usual() []string {
	return Setup{binDir: platform.Kubeadm.BinDir, confDir: platform.Kubeadm.ConfDir, pluginType: pluginType, conflist: shimConflist}.paths()
}

// recorded are the paths of ovnkube's files by external_ids. Without the record they are the usual ones, if ovnkube has been
// there.
func recorded(ids map[string]string) (all []string) {
	switch {
	case ids[names.CNIFiles] != "":
		all = filepath.SplitList(ids[names.CNIFiles])
	case ids[names.FormerIDs] != "":
		all = usual()
	}
	if dir := ids[ConfDirID]; dir != "" {
		all = append(all, filepath.Join(dir, shimConflist))
	}
	return all
}

// Record is the value of names.CNIFiles to write: the paths of a Setup of FindShim, and those of former settings with a file.
// It is empty if they are the usual ones.
func (s Setup) Record(ids map[string]string) string {
	all := s.paths()
	for _, path := range recorded(ids) {
		if _, err := os.Lstat(path); err == nil && !slices.Contains(all, path) {
			all = append(all, path)
		}
	}
	if slices.Equal(all, usual()) {
		return ""
	}
	return strings.Join(all, string(filepath.ListSeparator))
}

// RemoveRecorded is Disable and Remove for the files of a Setup of FindShim and for recorded ones: configurations come first, so
// that the kubelet starts no pods.
func (s Setup) RemoveRecorded(ids map[string]string) ([]files.Edit, error) {
	configurations, programs, err := s.remove(append(s.paths(), recorded(ids)...))
	return append(configurations, programs...), err
}

// Former returns the edits to remove files of former settings.
func (s Setup) Former(ids map[string]string) (configurations, programs []files.Edit, err error) {
	return s.remove(slices.DeleteFunc(recorded(ids), func(path string) bool { return slices.Contains(s.paths(), path) }))
}

func (s Setup) remove(paths []string) (configurations, programs []files.Edit, err error) {
	for _, path := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		other, to, edits := s, &programs, Setup.Remove
		if filepath.Base(path) == s.conflist {
			other.confDir, to, edits = filepath.Dir(path), &configurations, Setup.Disable
		} else {
			other.binDir, other.pluginType = filepath.Dir(path), filepath.Base(path)
		}
		more, err := edits(other)
		if err != nil {
			return nil, nil, err
		}
		*to = append(*to, more...)
	}
	return configurations, programs, nil
}
