package reconcile

import (
	"errors"
	"testing"
)

func TestReason(t *testing.T) {
	for text, want := range map[string]string{
		"lookup db on 192.0.2.53:53: read udp 192.0.2.1:45113->192.0.2.53:53: i/o timeout":       "lookup db on 192.0.2.53:53: read udp 192.0.2.53:53: i/o timeout",
		"read tcp [2001:db8::1]:38452->[2001:db8::2]:6443: read: connection reset by peer":       "read tcp [2001:db8::2]:6443: read: connection reset by peer",
		"Get \"https://192.0.2.1:6443/api\": dial tcp 192.0.2.1:6443: connect: no route to host": "Get \"https://192.0.2.1:6443/api\": dial tcp 192.0.2.1:6443: connect: no route to host",
	} {
		if got := Reason(errors.New(text)); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}
