package config

import "strconv"

// A Secret is a text never to be printed, neither by fmt nor as JSON.
type Secret string

// mask replaces a secret in output.
const mask = "********"

// String returns stars, or nothing if the secret is empty.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString is String for the verb %#v.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalJSON returns String as JSON.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(strconv.Quote(s.String())), nil }

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }
