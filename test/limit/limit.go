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
