package ovnkube

import (
	"testing"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/settings"
)

// CNI requests use the settings that the roles serve with, whatever has become of them since, and the present token.
func TestSettingsOfCNIRequests(t *testing.T) {
	resolve := func(ids map[string]string) (config.Config, error) {
		return options.Config(config.Sources{Flags: map[string]string{"init-node": "n1"}, ExternalIDs: ids})
	}
	accepted, err := resolve(map[string]string{"ovn-k8s-mtu": "1300", "k8s-api-token": "a"})
	if err != nil {
		t.Fatal(err)
	}
	invalid := func(config.Sources) (config.Config, error) {
		return resolve(map[string]string{"ovn-k8s-firewall": "nft"})
	}
	s := served{settings.Runtime{Resolve: invalid}, settings.Session{Config: accepted, Token: func() string { return "b" }}}
	if c, err := s.Load(t.Context(), nil); err != nil || c.MTU != 1300 || c.APIToken.Reveal() != "b" {
		t.Errorf("MTU %d, token %q, %v", c.MTU, c.APIToken.Reveal(), err)
	}
	s.session.Token = nil
	if c, err := s.Load(t.Context(), nil); err != nil || c.APIToken.Reveal() != "a" {
		t.Errorf("without a changed token: %q, %v", c.APIToken.Reveal(), err)
	}
}
