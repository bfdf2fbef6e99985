package node

import (
	"errors"
	"testing"
	"testing/synctest"
)

// A move that was undone is no success when the API server answers by the former network again, and the reason is that
// it did not answer before.
func TestReach(t *testing.T) {
	timeout := errors.New("i/o timeout")
	for name, c := range map[string]struct {
		answers []error // of the API server; the last one stays
		undone  int     // the number of answers before the move is undone; 0: never
		want    error
	}{
		"at once":                         {answers: []error{nil}},
		"after a time":                    {answers: []error{timeout, timeout, nil}},
		"never":                           {answers: []error{timeout}, undone: 3, want: timeout},
		"again, after the move is undone": {answers: []error{timeout, timeout, nil}, undone: 3, want: timeout},
		"at once, and nothing is to do":   {answers: []error{nil}, undone: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked, undone := 0, make(chan struct{})
				alive := func() error {
					asked++
					if asked == c.undone {
						close(undone)
					}
					return c.answers[min(asked, len(c.answers))-1]
				}
				if got := reach(alive, undone); !errors.Is(got, c.want) {
					t.Errorf("got %v, want %v", got, c.want)
				}
			})
		})
	}
}
