package config

import (
	"maps"
	"slices"
	"strings"

	"ovn-k8s/lib/names"
)

// defaultSection is the section of the Python version, with all keys.
const defaultSection = "default"

// fileKey normalizes a key of the file: it has no capitals, underscores instead of hyphens, and no name of the section
// [default].
func fileKey(k string) string {
	k = strings.ReplaceAll(strings.ToLower(k), "-", "_")
	return strings.TrimPrefix(k, defaultSection+".")
}

// keyText is a key as written in a message: "[section] key", and only "key" in the section [default].
func keyText(k string) string {
	section, key, ok := strings.Cut(k, ".")
	switch {
	case !ok:
		return k
	case strings.EqualFold(section, defaultSection):
		return key
	}
	return "[" + section + "] " + key
}

// ignored lists unknown keys that resemble a setting, each with the most similar known key, and all unknown keys of the
// section [default]: other sections may be another program's.
func ignored(s Sources) []string {
	ids, keys := map[string]bool{}, map[string]bool{}
	for _, set := range s.settings() {
		ids[set.ExternalID] = true
		for _, k := range set.Keys {
			keys[fileKey(k.Text)] = true
		}
	}
	var out []string
	for k := range s.ExternalIDs {
		meant := nearest(k, ids)
		if !ids[k] && !names.IsHostRecord(k) && (strings.HasPrefix(k, "ovn-k8s-") || meant != "") {
			out = append(out, noSetting("external_ids:"+k, meant))
		}
	}
	for k := range s.File {
		n := fileKey(k)
		meant := nearest(n, keys)
		if !keys[n] && (!strings.Contains(n, ".") || meant != "") {
			out = append(out, noSetting(s.fileName()+": "+keyText(k), keyText(meant)))
		}
	}
	slices.Sort(out)
	return out
}

func noSetting(key, meant string) string {
	text := key + " is no setting: it is ignored"
	if meant != "" {
		text += "; did you mean " + meant + "?"
	}
	return text
}

// slips is the largest number of differing letters in a misspelled key; for a short one it is a third of the letters.
const slips = 2

// nearest returns the known key most similar to key, "" if none is similar.
func nearest(key string, known map[string]bool) string {
	best, least := "", slips+1
	for _, k := range slices.Sorted(maps.Keys(known)) {
		if d := distance(key, k); 3*d <= len(k) && d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance of a and b, or slips+1 if it is more than slips.
func distance(a, b string) int {
	if len(a)-len(b) > slips || len(b)-len(a) > slips {
		return slips + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], slips+1)
}
