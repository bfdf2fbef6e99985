package link

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// A missing module is named, and no other error taken for one.
func TestUnforgottenConnectionsNameTheModule(t *testing.T) {
	for err, want := range map[error]string{
		nil:         "<nil>",
		unix.EINVAL: "forgetting UDP connections: the kernel lacks module nf_conntrack_netlink: invalid argument: install the kernel's modules",
		unix.EPERM:  "forgetting UDP connections: operation not permitted",
	} {
		got := unforgotten(err)
		if fmt.Sprint(got) != want || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
