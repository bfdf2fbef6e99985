package pod

import (
	"cmp"
	"strings"
)

// A podQueue is a heap (container/heap) of pods, the oldest first.
type podQueue []*podState

// Len implements heap.Interface.
func (q podQueue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q podQueue) Less(i, j int) bool { return compareAge(q[i], q[j]) < 0 }

// Swap implements heap.Interface.
func (q podQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].queued, q[j].queued = i+1, j+1
}

// Push implements heap.Interface.
func (q *podQueue) Push(x any) {
	p := x.(*podState)
	*q = append(*q, p)
	p.queued = len(*q)
}

// Pop implements heap.Interface.
func (q *podQueue) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	p.queued = 0
	return p
}

func compareAge(a, b *podState) int {
	return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
