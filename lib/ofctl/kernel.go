package ofctl

import (
	"context"
	"fmt"
	"regexp"
)

// kernelFlows matches a line of "ovs-dpctl show" of a datapath with flows.
var kernelFlows = regexp.MustCompile(`(?m)^\s*flows: *[1-9]`)

// KernelHasFlows reports whether a datapath of the kernel has flows. It does not need ovs-vswitchd.
func KernelHasFlows(ctx context.Context, rundir string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := execute(command(ctx, rundir, "ovs-dpctl", "show"), "")
	if err != nil {
		return false, fmt.Errorf("counting the kernel's flows: %w", err)
	}
	return kernelFlows.MatchString(out), nil
}
