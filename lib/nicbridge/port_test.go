package nicbridge

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"ovn-k8s/test/host"
	"ovn-k8s/test/require"
)

// An operator's settings of the NIC's port come back when a move to the NIC is undone, also after its process was killed. Settings for
// VLANs are named before the move.
func TestPortSettingsComeBack(t *testing.T) {
	require.Nothing(t, require.Node, host.Missing())
	t.Parallel()
	w := newWorld(t)
	w.reset()
	if err := w.batch([]string{"address add 10.0.0.5/24 dev eth0"}); err != nil {
		t.Fatal(err)
	}
	if err := w.move(ToBridge); err != nil {
		t.Fatal(err)
	}
	w.script("ovs-vsctl set Port eth0 tag=5 other_config:x=y -- set Interface eth0 external_ids:a=b -- set Port breth0 tag=7")
	list := func() string {
		return w.script("ovs-vsctl --columns=tag,other_config,external_ids list Port eth0 -- --columns=external_ids list Interface eth0 -- --columns=tag list Port breth0")
	}
	before, state := list(), w.state()
	var warnings bytes.Buffer
	w.s.Err = &warnings
	for _, with := range []error{errInjected, errKilled} {
		w.s.mover.before = func(st Step) error {
			if st.Do == settle && st.On == "eth0" {
				return with
			}
			return nil
		}
		if err := w.move(ToNIC); !errors.Is(err, with) {
			t.Fatal(err)
		}
		w.s.mover.before = nil
		if err := w.s.recover(t.Context(), w.s.overdue); err != nil {
			t.Fatal(err)
		}
		w.same("settings of the port", before, list())
		w.same("the host", state, w.state())
	}
	for _, want := range []string{"port eth0 of bridge breth0 has tag=5: ", "port breth0 of bridge breth0 has tag=7: "} {
		if !strings.Contains(warnings.String(), want) {
			t.Errorf("no warning %q: %s", want, &warnings)
		}
	}
}
