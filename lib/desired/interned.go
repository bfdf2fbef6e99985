package desired

import "strings"

// interned has one copy of each string shared by endpoints.
type interned struct{ copies map[string]string }

// copyOf returns the shared copy of a string.
func (x *interned) copyOf(text string) string {
	if one, ok := x.copies[text]; ok {
		return one
	}
	text = strings.Clone(text)
	x.copies[text] = text
	return text
}

// keep makes a string in use its only copy.
func (x *interned) keep(text string) {
	if _, ok := x.copies[text]; !ok {
		x.copies[text] = text
	}
}
