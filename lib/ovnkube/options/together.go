package options

import (
	"fmt"
	"strconv"
	"time"
)

// A Rotation is when the log file is rotated. The zero Rotation is never.
type Rotation struct {
	Size    int64         // of the file in bytes
	Backups int           // to keep; 0: all
	Age     time.Duration // of backups to keep; 0: any
}

// A Lease has the times of the Lease of masters: its duration without renewal, the time in which a renewal must succeed,
// and the time between two tries. The zero Lease leaves them to lib/kube.
type Lease struct{ Duration, RenewDeadline, RetryPeriod time.Duration }

// A former is a setting with its default in former releases. It has it only beside another one of its group, so that old
// command lines mean what they did, and all others what they do without the group.
type former struct{ name, value string }

// together reads the numbers of a group. ok: one of them is given, and all are right.
func (q *reader) together(low, high int, group ...former) (n []int, ok bool) {
	wrong := false
	for _, s := range group {
		value, _ := strconv.Atoi(s.value)
		if q.Given(s.name) {
			ok, value = true, q.Number(s.name, low, high)
			wrong = wrong || value < low || value > high
		}
		n = append(n, value)
	}
	return n, ok && !wrong
}

func (q *reader) rotation() {
	n, ok := q.together(0, 1<<31-1, former{logSize, "100"}, former{logBackups, "5"}, former{logAge, "5"})
	if !ok {
		return
	}
	const century = 36525 // days; many more do not fit into a time.Duration
	q.Rotation = Rotation{Size: int64(n[0]) << 20, Backups: n[1], Age: time.Duration(min(n[2], century)) * 24 * time.Hour}
}

// lease reads the times of the Lease. A renewal is tried at least once before its deadline, and that is before the end of
// the Lease: client-go demands it.
func (q *reader) lease() {
	n, ok := q.together(1, 3600, former{leaseDuration, "60"}, former{renewDeadline, "30"}, former{retryPeriod, "20"})
	if !ok {
		return
	}
	q.Lease = Lease{time.Duration(n[0]) * time.Second, time.Duration(n[1]) * time.Second, time.Duration(n[2]) * time.Second}
	switch {
	case n[0] > n[1]:
	case q.Given(leaseDuration):
		q.Fail(leaseDuration, fmt.Sprintf("want more than %s, %d", renewDeadline, n[1]))
	default:
		q.Fail(renewDeadline, fmt.Sprintf("want less than %s, %d", leaseDuration, n[0]))
	}
	switch {
	case 10*n[1] > 12*n[2]:
	case q.Given(renewDeadline):
		q.Fail(renewDeadline, fmt.Sprintf("want more than 1.2 times %s, %d", retryPeriod, n[2]))
	default:
		q.Fail(retryPeriod, fmt.Sprintf("want less than %s, %d, divided by 1.2", renewDeadline, n[1]))
	}
}
