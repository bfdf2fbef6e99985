package pace

import (
	"testing"
	"time"
)

// A changer changes rows of a cluster: rate rows a second in any case, or one after the other, each think after the
// previous write.
type changer struct {
	rate  float64
	think time.Duration
	each  float64 // the weight of a row
}

// pace changes rows for a minute and returns the mean gap of the last half of it.
func (c changer) pace(size int) time.Duration {
	const work = 10 * time.Millisecond // of a transaction
	var p Pacer
	var gaps time.Duration
	n, gap, carry := 0, time.Duration(0), 0.0
	now := time.Unix(1700000000, 0)
	begin := now
	for now.Sub(begin) < time.Minute {
		rows, waiting := 1.0, 0
		if c.think > 0 {
			if gap > 0 { // the Lull ends it
				gap = min(gap, c.think+max(Lull, gap/5))
			}
			now = now.Add(work + max(gap, c.think))
		} else {
			took := max(work+gap, time.Duration(float64(time.Second)/c.rate))
			carry += c.rate * took.Seconds()
			rows = float64(int(carry))
			carry -= rows
			waiting = int(c.rate * work.Seconds())
			now = now.Add(took)
		}
		gap = p.Gap(now, Batch{int(rows), rows * c.each, waiting}, size)
		if now.Sub(begin) > 30*time.Second {
			gaps, n = gaps+gap, n+1
		}
	}
	return gaps / time.Duration(n)
}

func TestPace(t *testing.T) {
	for _, tt := range []struct {
		name     string
		client   changer
		size     int
		min, max time.Duration
	}{
		{"a lone pod", changer{rate: 1. / 20, each: 1}, 5000, 0, 0},
		{"a pod now and then", changer{rate: 2, each: 1}, 5000, 0, 0},
		{"300 a second", changer{rate: 300, each: 1}, 5000, 80 * time.Millisecond, 160 * time.Millisecond},
		{"300 a second in a small cluster", changer{rate: 300, each: 1}, 50, 20 * time.Millisecond, 20 * time.Millisecond},
		{"one change after the other", changer{think: 30 * time.Millisecond, each: 1}, 500, 0, 5 * time.Millisecond},
		{"one change after the other in a large cluster", changer{think: 30 * time.Millisecond, each: 1}, 5000, 0, 8 * time.Millisecond},
		{"one endpoint after the other", changer{think: 30 * time.Millisecond, each: perBalancer}, 5000, 0, 8 * time.Millisecond},
		{"many services", changer{rate: 400, each: perBalancer}, 1000, 250 * time.Millisecond, maxGap},
		{"a slow burst", changer{rate: 50, each: 1}, 5000, maxGap, maxGap},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.client.pace(tt.size); got < tt.min || got > tt.max {
				t.Errorf("gap %s, want %s to %s", got, tt.min, tt.max)
			}
		})
	}
}
