package kube

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Awaited names the kinds of objects not read yet, or not followed at present, with the reasons in lost; "":
// none.
func Awaited(missing map[string]bool, lost map[string]error) string {
	kinds, why := map[string][]string{}, map[string]string{} // by cause
	all := slices.AppendSeq(slices.Collect(maps.Keys(missing)), maps.Keys(lost))
	slices.Sort(all)
	for _, kind := range slices.Compact(all) {
		cause, reason := "", "not read yet"
		if err := lost[kind]; err != nil {
			cause, reason = Cause(err), cmp.Or(Waiting(err), err.Error())
		}
		kinds[cause], why[cause] = append(kinds[cause], kind), cmp.Or(why[cause], reason)
	}
	var texts []string
	for cause, names := range kinds {
		texts = append(texts, strings.Join(names, ", ")+": "+why[cause])
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}
