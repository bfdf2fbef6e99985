package limit_test

import (
	"testing"
	"time"

	"ovn-k8s/test/limit"
)

func TestOf(t *testing.T) {
	for factor, want := range map[string]time.Duration{"": time.Second, "x": time.Second, "0": time.Second, "-1": time.Second, "2.5": 2500 * time.Millisecond} {
		t.Setenv("OVNK8S_TEST_TIME_FACTOR", factor)
		if got := limit.Of(time.Second); got != want {
			t.Errorf("factor %q: %v, want %v", factor, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	for factor, want := range map[string]int{"": 50, "10": 5, "100": 2, "0.5": 100} {
		t.Setenv("OVNK8S_TEST_TIME_FACTOR", factor)
		if got := limit.Number(50); got != want {
			t.Errorf("factor %q: %d, want %d", factor, got, want)
		}
	}
}
