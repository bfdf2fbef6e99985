package south

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/ovsdb"
)

// A site is a network with an owner, a Southbound and a Northbound database.
type site struct {
	Follower
	events           []func() []nb.Unit
	puts             []any
	counted          int  // calls of Services
	userspace, known bool // in the Southbound database
	rows, byPort     int  // in the Northbound database
	away, ipv6Source bool
}

func newSite() *site {
	s := &site{known: true, rows: 2, byPort: 2}
	log := logrus.New()
	log.Out = io.Discard
	s.Follower = Follower{
		Log: logrus.NewEntry(log), Send: func(ev func() []nb.Unit) { s.events = append(s.events, ev) }, World: s, NB: s,
		Services: func() (loadbalancer.Selection, int, int, error) {
			s.counted++
			if s.away {
				return loadbalancer.Selection{}, 0, 0, ovsdb.ErrNotConnected
			}
			return loadbalancer.Selection{IPv6Source: s.ipv6Source}, s.rows, s.byPort, nil
		},
	}
	return s
}

func (s *site) Put(fact any) []nb.Unit {
	s.puts = append(s.puts, fact)
	return nil
}

func (s *site) Allows(string, string, string) bool { return s.ipv6Source && !s.away }

// work is the owner's goroutine.
func (s *site) work() {
	for len(s.events) > 0 {
		ev := s.events[0]
		s.events = s.events[1:]
		ev()
	}
}

// A burst of row events counts the load balancers once, and later ones only if the answer differs.
func TestManyRowEventsCountOnce(t *testing.T) {
	s := newSite()
	s.userspace = true
	tell, _ := s.followDatapath(func() (bool, bool) { return s.userspace, s.known })
	step := func(what string, counted, puts int) {
		t.Helper()
		for range 1000 {
			tell()
		}
		if len(s.events) != 1 {
			t.Errorf("%s: %d events, want 1", what, len(s.events))
		}
		s.work()
		if s.counted != counted || len(s.puts) != puts {
			t.Errorf("%s: counted %d times and %d puts, want %d and %d", what, s.counted, len(s.puts), counted, puts)
		}
	}
	step("the first answer", 1, 1)
	step("the same one", 1, 1)
	s.known = false
	step("without an answer", 1, 1)
	s.known, s.ipv6Source = true, true
	step("another schema", 2, 2)
	step("the same schema", 2, 2)
	s.away = true
	step("the Northbound database is away", 3, 2)
	s.away = false
	step("it is back", 4, 3)
	s.userspace, s.byPort = false, 0
	step("no userspace datapath, nothing to lose", 5, 4)
	step("the same once more", 5, 4)
	want := []any{
		loadbalancer.Selection{Userspace: true}, loadbalancer.Selection{Userspace: true, IPv6Source: true},
		loadbalancer.Selection{Userspace: true, IPv6Source: true}, loadbalancer.Selection{IPv6Source: true},
	}
	if diff := cmp.Diff(want, s.puts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Services are written for the kernel's datapath five minutes after the last chassis with the other one, also if an answer
// is missing at the end of that time, and row events meanwhile count nothing.
func TestKernelDatapathAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		tell, stop := s.followDatapath(func() (bool, bool) { return s.userspace, s.known })
		step := func(what string, after time.Duration, counted int, puts ...any) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			s.work()
			if diff := cmp.Diff(puts, s.puts); diff != "" || s.counted != counted {
				t.Errorf("%s: counted %d times, want %d (-want +got):\n%s", what, s.counted, counted, diff)
			}
		}
		userspace, kernel := loadbalancer.Selection{Userspace: true}, loadbalancer.Selection{}
		s.userspace = true
		tell()
		step("userspace", 0, 1, userspace)
		s.userspace = false
		tell()
		step("none", 0, 2, userspace)
		tell()
		step("another event", kernelAfter-time.Second, 2, userspace)
		s.userspace = true
		tell()
		step("back in time", time.Hour, 2, userspace)
		s.userspace = false
		tell()
		step("none again", 0, 3, userspace)
		s.known = false
		step("no answer at the end", kernelAfter+time.Second, 3, userspace)
		s.known = true
		tell()
		step("an answer", 0, 4, userspace)
		step("for long", kernelAfter+time.Second, 5, userspace, kernel)
		tell()
		step("another event at the end", time.Hour, 5, userspace, kernel)
		s.userspace = true
		s.away = true
		tell()
		step("the Northbound database is away", 0, 6, userspace, kernel)
		s.away = false
		step("it is back", southRetry+time.Second, 7, userspace, kernel, userspace)
		stop()
		s.work()
	})
}
