// Package limit scales the time limits of tests on slow machines, such as emulated
// ones.
package limit

import (
	"os"
	"strconv"
	"time"
)

// Of returns a time limit for this machine: d times OVNK8S_TEST_TIME_FACTOR, a
// number such as 5, if it is set. The factor is for limits of waiting for an event,
// not for periods of the tested programs.
func Of(d time.Duration) time.Duration {
	factor, err := strconv.ParseFloat(os.Getenv("OVNK8S_TEST_TIME_FACTOR"), 64)
	if err != nil || factor <= 0 {
		return d
	}
	return time.Duration(float64(d) * factor)
}

// Number returns the number of things to do at once on this machine: n divided by OVNK8S_TEST_TIME_FACTOR, at least 2, for
// tests whose programs have time limits of their own.
func Number(n int) int {
	return max(2, int(float64(n)*float64(time.Second)/float64(Of(time.Second))))
}
