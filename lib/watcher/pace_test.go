package watcher

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	now := time.Unix(1700000000, 0)
	for _, tt := range []struct {
		name     string
		rows     float64       // of each transaction
		every    time.Duration // a transaction
		size     int
		min, max time.Duration
	}{
		{"a lone pod", 1, time.Minute, 5000, 0, 0},
		{"a pod now and then", 1, 500 * time.Millisecond, 5000, 0, 0},
		{"300 a second", 30, 100 * time.Millisecond, 5000, 80 * time.Millisecond, 160 * time.Millisecond},
		{"300 a second in a small cluster", 30, 100 * time.Millisecond, 50, 10 * time.Millisecond, 10 * time.Millisecond},
		{"one change after the other", 1, 40 * time.Millisecond, 500, 0, 0},
		{"one endpoint after the other", perBalancer, 40 * time.Millisecond, 5000, 0, 0},
		{"many services", 40 * perBalancer, 100 * time.Millisecond, 1000, 200 * time.Millisecond, 200 * time.Millisecond},
		{"one change after the other in a large cluster", 1, 40 * time.Millisecond, 5000, maxGap, maxGap},
		{"a slow burst", 5, 100 * time.Millisecond, 5000, maxGap, maxGap},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p pacer
			var got time.Duration
			for range 20 {
				now = now.Add(tt.every)
				got = p.gap(now, tt.rows, tt.size)
			}
			if got < tt.min || got > tt.max {
				t.Errorf("gap %s, want %s to %s", got, tt.min, tt.max)
			}
		})
	}
}
