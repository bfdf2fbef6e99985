package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A tunnel to a joining host causes no pass, nor does a pod, unless passes wait for pods.
func TestInterfacesOfPasses(t *testing.T) {
	for _, c := range []struct {
		pods bool
		want string
	}{{false, "k8s-n1 patch "}, {true, "k8s-n1 patch pod "}} {
		all := []vswitch.Interface{
			{Name: "ovn-1", Type: "geneve"}, {Name: "k8s-n1", Type: "internal"}, {Name: "ovn-2", Type: "vxlan"}, {Name: "patch", Type: "patch"},
			{Name: "pod", ExternalIDs: map[string]string{names.Sandbox: "1"}}, {Name: "ovn-3", Type: "stt"},
		}
		got := ""
		for _, i := range all {
			if ofPasses(i, c.pods) {
				got += i.Name + " "
			}
		}
		if got != c.want {
			t.Errorf("with pods %t: %q, want %q", c.pods, got, c.want)
		}
	}
}

// A change is looked at without a delay, and the many of a burst of pods a few times a second, the last one included.
func TestChangesOfABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		changed, done, looks, changes, seen := make(chan struct{}, 1), make(chan struct{}), 0, 0, 0
		go func() {
			paced(ctx, changed, func() { looks, seen = looks+1, changes })
			close(done)
		}()
		for changes < 600 {
			changes++
			poke(changed)
			synctest.Wait()
			if looks == 0 {
				t.Fatal("the first change is not looked at")
			}
			<-time.After(time.Millisecond) // of the bubble's clock
		}
		<-time.After(rest)
		synctest.Wait()
		if looks > 4 || seen != changes {
			t.Errorf("looked %d times at %d changes, want 4; the last one saw %d", looks, changes, seen)
		}
		poke(changed) // the end does not wait for the rest
		synctest.Wait()
		before := time.Now()
		cancel()
		<-done
		if time.Since(before) > 0 {
			t.Error("the end waits")
		}
	})
}
