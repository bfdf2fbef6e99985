package nftables

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/ruleset"
	"ovn-k8s/test/hanging"
	"ovn-k8s/test/namespace"
)

// A hanging nft ends with its context, and the error says so.
func TestHangingNFT(t *testing.T) {
	ctx, late := hanging.Program(t, "nft")
	if _, err := open(ctx, netip.IPv4Unspecified()); !errors.Is(err, late) {
		t.Error(err)
	}
}

// A transaction of nft ends with its context.
func TestHangingTransaction(t *testing.T) {
	namespace.Load(t, "table ip other { }")
	table := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	synced(t, table, sample("a"))
	late := errors.New("it is late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, late)
	defer cancel()
	<-ctx.Done()
	if _, _, err := table.Sync(ctx, "svc-", sample("a", "b")); !errors.Is(err, late) {
		t.Error(err)
	}
	synced(t, table, sample("a", "b"))
	synced(t, table, ruleset.Table{})
}
