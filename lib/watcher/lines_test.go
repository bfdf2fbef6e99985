package watcher

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/watcher/core"
)

// A putWorld lists the names of the objects put.
type putWorld struct {
	World
	put []string
}

func (w *putWorld) Put(o any) []nb.Unit {
	w.put = append(w.put, o.(metav1.Object).GetName())
	return nil
}

func (w *putWorld) Allocate() []nb.Unit { return nil }

// L1: a pod does not wait until all Services that came before it are recorded.
func TestPodsDoNotWaitForServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(&connections{}, logrus.NewEntry(logrus.New()), core.New(), nil)
		w := &putWorld{}
		e.worlds = worlds{newMember(w, kube.Kinds())}
		send := func(o runtime.Object) {
			for _, s := range e.subscriptions() {
				if s.Kind.Is(o) {
					s.Send(kube.Event{Kind: s.Kind, Object: o})
				}
			}
		}
		for i := range 3 {
			send(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("service-", i)}})
		}
		send(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}})
		go e.loop.Run(t.Context())
		synctest.Wait()
		if want := []string{"service-0", "pod", "service-1", "service-2"}; !slices.Equal(w.put, want) {
			t.Errorf("recorded %s, want %s", w.put, want)
		}
	})
}
