package foreign

import (
	"errors"
	"testing"

	"ovn-k8s/test/hanging"
)

// A hanging nft ends with its context, also if a child keeps its output open.
func TestHangingNFT(t *testing.T) {
	ctx, late := hanging.Program(t, "nft")
	if _, err := Read(ctx); !errors.Is(err, late) {
		t.Error(err)
	}
}
