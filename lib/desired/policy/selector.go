package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
)

type label struct{ key, value string }

// labels are sorted by key.
type labels []label

func newLabels(m map[string]string) labels {
	if len(m) == 0 {
		return nil
	}
	out := make(labels, 0, len(m))
	for k, v := range m {
		out = append(out, label{k, v})
	}
	slices.SortFunc(out, func(a, b label) int { return strings.Compare(a.key, b.key) })
	return out
}

func (l labels) get(key string) (string, bool) {
	if i := l.index(key); i >= 0 {
		return l[i].value, true
	}
	return "", false
}

// index returns the index of a key, -1 if it is absent.
func (l labels) index(key string) int {
	if len(l) > 10 {
		i, ok := slices.BinarySearchFunc(l, key, func(a label, key string) int { return strings.Compare(a.key, key) })
		if !ok {
			return -1
		}
		return i
	}
	for i := range l {
		if l[i].key == key {
			return i
		}
	}
	return -1
}

// A labelSelector is a list of requirements for labels. The zero value accepts all. Two
// selectors are equal even if they differ in order, or in matchLabels written as
// expressions.
type labelSelector struct{ needs []requirement }

type requirement struct {
	key    string
	op     metav1.LabelSelectorOperator
	values []string // sorted
}

func newSelector(s *metav1.LabelSelector) (labelSelector, error) {
	if errs := validation.ValidateLabelSelector(s, validation.LabelSelectorValidationOptions{}, nil); len(errs) > 0 {
		return labelSelector{}, fmt.Errorf("%s", strings.TrimPrefix(errs[0].Error(), "<nil>."))
	}
	needs := make([]requirement, 0, len(s.MatchLabels)+len(s.MatchExpressions))
	for k, v := range s.MatchLabels {
		needs = append(needs, requirement{k, metav1.LabelSelectorOpIn, []string{v}})
	}
	for _, e := range s.MatchExpressions {
		values := slices.Compact(slices.Sorted(slices.Values(e.Values)))
		needs = append(needs, requirement{e.Key, e.Operator, values})
	}
	slices.SortFunc(needs, compareRequirements)
	return labelSelector{slices.CompactFunc(needs, func(a, b requirement) bool { return compareRequirements(a, b) == 0 })}, nil
}

func compareRequirements(a, b requirement) int {
	return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(string(a.op), string(b.op)), slices.Compare(a.values, b.values))
}

// matches reports whether l meets all requirements of s.
func (s labelSelector) matches(l labels) bool {
	for i := range s.needs {
		if !s.needs[i].met(l) {
			return false
		}
	}
	return true
}

func (r *requirement) met(l labels) bool {
	v, ok := l.get(r.key)
	switch r.op {
	case metav1.LabelSelectorOpIn:
		return ok && r.has(v)
	case metav1.LabelSelectorOpNotIn: // an absent label is not in the list
		return !ok || !r.has(v)
	case metav1.LabelSelectorOpExists:
		return ok
	}
	return !ok
}

func (r *requirement) has(v string) bool {
	_, ok := slices.BinarySearch(r.values, v)
	return ok
}

// String formats the selector like kubectl, "" for all. Only equal selectors have equal
// strings: no key or value holds a comma, a space or a parenthesis.
func (s labelSelector) String() string {
	var b strings.Builder
	for i, r := range s.needs {
		if i > 0 {
			b.WriteByte(',')
		}
		switch {
		case r.op == metav1.LabelSelectorOpIn && len(r.values) == 1:
			b.WriteString(r.key + "=" + r.values[0])
		case r.op == metav1.LabelSelectorOpIn:
			b.WriteString(r.key + " in (" + strings.Join(r.values, ",") + ")")
		case r.op == metav1.LabelSelectorOpNotIn:
			b.WriteString(r.key + " notin (" + strings.Join(r.values, ",") + ")")
		case r.op == metav1.LabelSelectorOpExists:
			b.WriteString(r.key)
		default:
			b.WriteString("!" + r.key)
		}
	}
	return b.String()
}

// An index finds candidate selectors for labels without testing each: it files a
// selector under one of its requirements. The zero value is empty.
type index[T comparable] struct {
	byLabel map[label][]T
	byKey   map[string][]T
	others  []T // require only the absence of labels or values
}

// places returns the labels, or else the key, under which a selector is filed.
func (s labelSelector) places() (byLabel []label, byKey string) {
	for _, r := range s.needs {
		switch r.op {
		case metav1.LabelSelectorOpIn:
			if byLabel == nil || len(r.values) < len(byLabel) {
				byLabel = nil
				for _, v := range r.values {
					byLabel = append(byLabel, label{r.key, v})
				}
			}
		case metav1.LabelSelectorOpExists:
			byKey = r.key
		}
	}
	return byLabel, byKey
}

func (x *index[T]) add(s labelSelector, v T) {
	byLabel, byKey := s.places()
	switch {
	case byLabel != nil:
		if x.byLabel == nil {
			x.byLabel = map[label][]T{}
		}
		for _, l := range byLabel {
			x.byLabel[l] = append(x.byLabel[l], v)
		}
	case byKey != "":
		if x.byKey == nil {
			x.byKey = map[string][]T{}
		}
		x.byKey[byKey] = append(x.byKey[byKey], v)
	default:
		x.others = append(x.others, v)
	}
}

func (x *index[T]) remove(s labelSelector, v T) {
	byLabel, byKey := s.places()
	switch {
	case byLabel != nil:
		for _, l := range byLabel {
			drop(x.byLabel, l, v)
		}
	case byKey != "":
		drop(x.byKey, byKey, v)
	default:
		x.others = without(x.others, v)
	}
}

// candidates calls try with each selector that may match l, each once.
func (x *index[T]) candidates(l labels, try func(T)) {
	for _, v := range x.others {
		try(v)
	}
	for i := range l {
		for _, v := range x.byLabel[l[i]] {
			try(v)
		}
		for _, v := range x.byKey[l[i].key] {
			try(v)
		}
	}
}

// drop removes v from the list of key k.
func drop[K, V comparable](lists map[K][]V, k K, v V) {
	if lists[k] = without(lists[k], v); len(lists[k]) == 0 {
		delete(lists, k)
	}
}

// without removes v from a list without regard to its order.
func without[T comparable](list []T, v T) []T {
	i := slices.Index(list, v)
	if i < 0 {
		return list
	}
	last := len(list) - 1
	list[i] = list[last]
	var zero T
	list[last] = zero
	return list[:last]
}
