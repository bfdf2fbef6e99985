package replyroute

import (
	"reflect"
	"testing"
)

// L5: an Index has a candidate for each endpoint of a Service with policy Local: 100 000 with 1 000 nodes.
func TestACandidateIsSmall(t *testing.T) {
	if n := reflect.TypeFor[candidate]().Size(); n > 16 {
		t.Errorf("it has %d bytes", n)
	}
}
