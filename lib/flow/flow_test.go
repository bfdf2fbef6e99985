package flow_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/flow"
)

func TestMatchIsSpelledAsOvsOfctlPrintsIt(t *testing.T) {
	for _, tt := range []struct {
		match flow.Match
		want  string
	}{
		{flow.Match{}, ""},
		{flow.Match{State: "+est+trk"}, "ct_state=+est+trk"},
		{flow.Match{Protocol: "tcp", InPort: 1, From: netip.MustParsePrefix("10.0.0.0/8"), To: netip.MustParsePrefix("10.0.0.5/32"), ToPort: 30082}, "tcp,in_port=1,nw_src=10.0.0.0/8,nw_dst=10.0.0.5,tp_dst=30082"},
		{flow.Match{Protocol: "icmp6", InPort: flow.Local, EthDst: "0a:00:00:00:00:01", ICMPType: 136}, "icmp6,in_port=LOCAL,dl_dst=0a:00:00:00:00:01,icmp_type=136"},
		{flow.Match{Protocol: "tcp6", To: netip.MustParsePrefix("fd00::5/128")}, "tcp6,ipv6_dst=fd00::5"},
	} {
		if got := tt.match.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestParse(t *testing.T) {
	for line, want := range map[string]flow.Flow{
		" cookie=0x6b, priority=100,tcp,in_port=1,tp_dst=80 actions=LOCAL,output:2":          {Cookie: 0x6b, Priority: 100, Match: "tcp,in_port=1,tp_dst=80", Actions: "LOCAL,output:2"},
		" table=1, priority=0 actions=NORMAL":                                                {Table: 1, Actions: "NORMAL"},
		" ip actions=drop":                                                                   {Priority: 32768, Match: "ip", Actions: "drop"},
		"cookie=0x1, table=3, idle_timeout=5, priority=7,in_port=LOCAL actions=resubmit(,4)": {Cookie: 1, Table: 3, Priority: 7, Match: "idle_timeout=5,in_port=LOCAL", Actions: "resubmit(,4)"},
	} {
		got, err := flow.Parse(line)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", line, err, diff)
		}
	}
	for _, line := range []string{"", "priority=1", "cookie=x actions=drop", "table=-, actions=drop", "priority=1.5 actions=drop"} {
		if f, err := flow.Parse(line); err == nil {
			t.Errorf("%q is %+v", line, f)
		}
	}
}

func TestTheOrderOfFieldsDoesNotMatter(t *testing.T) {
	a := flow.Flow{Priority: 1, Match: "tcp,in_port=1,tp_dst=80"}
	b := flow.Flow{Priority: 1, Match: "in_port=1,tcp,tp_dst=80"}
	if a.Key() != b.Key() {
		t.Errorf("%v, %v", a.Key(), b.Key())
	}
}

func FuzzParse(f *testing.F) {
	f.Add(" cookie=0x6b, table=1, priority=100,tcp,in_port=1,tp_dst=80 actions=LOCAL,output:2")
	f.Fuzz(func(t *testing.T, line string) {
		one, err := flow.Parse(line)
		if err != nil {
			return
		}
		two, err := flow.Parse(one.String())
		if err != nil {
			t.Fatalf("%q, written as %q: %v", line, one, err)
		}
		if one.Key() != two.Key() || one.Cookie != two.Cookie {
			t.Errorf("%q: %+v, then %+v", line, one, two)
		}
	})
}
