package policy

import (
	"fmt"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// API servers before Kubernetes 1.36 accept host bits, and later ones keep such policies.
func TestHostBitsOfBlocksAreIgnored(t *testing.T) {
	left, err := parseBlock(&networkingv1.IPBlock{CIDR: "10.1.2.3/15", Except: []string{"10.1.2.3/16"}})
	if err != nil || fmt.Sprint(left) != "[10.0.0.0/16]" {
		t.Errorf("got %v, %v", left, err)
	}
}
