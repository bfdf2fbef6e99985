package hostile

import "testing"

func TestSFlowIsAsFound(t *testing.T) {
	if n := len(SFlow()); n != 158 {
		t.Errorf("%d bytes", n)
	}
	if n := len(every()); n < 1000 {
		t.Errorf("%d kinds of frames", n)
	}
}
