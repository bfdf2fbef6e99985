package ifstate

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// sysctls are the settings of an interface that affect its traffic (ip-sysctl.rst of the kernel).
var sysctls = []string{
	"ipv4/conf/%/accept_local", "ipv4/conf/%/accept_redirects", "ipv4/conf/%/accept_source_route", "ipv4/conf/%/arp_accept",
	"ipv4/conf/%/arp_announce", "ipv4/conf/%/arp_filter", "ipv4/conf/%/arp_ignore", "ipv4/conf/%/arp_notify", "ipv4/conf/%/forwarding",
	"ipv4/conf/%/log_martians", "ipv4/conf/%/promote_secondaries", "ipv4/conf/%/proxy_arp", "ipv4/conf/%/proxy_arp_pvlan",
	"ipv4/conf/%/route_localnet", "ipv4/conf/%/rp_filter", "ipv4/conf/%/secure_redirects", "ipv4/conf/%/send_redirects",
	"ipv4/conf/%/src_valid_mark",
	"ipv6/conf/%/accept_dad", "ipv6/conf/%/accept_ra_defrtr", "ipv6/conf/%/accept_ra_mtu", "ipv6/conf/%/accept_ra_pinfo",
	"ipv6/conf/%/accept_ra_rt_info_max_plen", "ipv6/conf/%/accept_ra_rtr_pref", "ipv6/conf/%/accept_redirects", "ipv6/conf/%/autoconf",
	"ipv6/conf/%/dad_transmits", "ipv6/conf/%/forwarding", "ipv6/conf/%/hop_limit", "ipv6/conf/%/keep_addr_on_down",
	"ipv6/conf/%/ndisc_notify", "ipv6/conf/%/proxy_ndp", "ipv6/conf/%/stable_secret", "ipv6/conf/%/temp_prefered_lft",
	"ipv6/conf/%/temp_valid_lft", AcceptRA, GenerateMode, DisableIPv6, TemporaryAddresses,
}

// Temporarily changed settings, as keys of Settings.
const (
	AcceptRA     = "ipv6/conf/%/accept_ra"
	GenerateMode = "ipv6/conf/%/addr_gen_mode"
	DisableIPv6  = "ipv6/conf/%/disable_ipv6"
	ReversePath  = "ipv4/conf/%/rp_filter"
	IgnoreARP    = "ipv4/conf/%/arp_ignore"

	TemporaryAddresses = "ipv6/conf/%/use_tempaddr"
)

// Settings are sysctls of an interface below /proc/sys/net. Their names have "%" for the interface.
type Settings map[string]string

// SettingsOf reads the settings of an interface. Missing and unset ones are omitted.
func SettingsOf(i Interface) (Settings, error) {
	s := Settings{}
	for _, name := range sysctls {
		b, err := os.ReadFile(sysctlPath(name, i))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EIO) { // stable_secret, if it is unset
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading a setting of %s: %w", i.Name, err)
		}
		s[name] = strings.TrimSpace(string(b))
	}
	return s, nil
}

func sysctlPath(name string, i Interface) string {
	return "/proc/sys/net/" + strings.Replace(name, "%", i.Name, 1)
}

// Configure applies settings to an interface. Equal ones are not written, because writing has side effects; missing
// ones are skipped: an interface with an MTU below 1280 has no IPv6.
func Configure(s Settings, i Interface) error {
	for _, name := range slices.SortedFunc(maps.Keys(s), order) {
		path := sysctlPath(name, i)
		is, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(is)) == s[name] {
			continue
		}
		if err := os.WriteFile(path, []byte(s[name]), 0o644); err != nil {
			return fmt.Errorf("setting %s of %s to %s: %w", strings.ReplaceAll(strings.ReplaceAll(name, "/", "."), "%", i.Name), i.Name, s[name], err)
		}
	}
	return nil
}

// order puts disable_ipv6 after addr_gen_mode, which affects enabling, and stable_secret before that, since it
// changes addr_gen_mode. Forwarding sets others.
func order(a, b string) int {
	return strings.Compare(rank(a)+a, rank(b)+b)
}

func rank(name string) string {
	switch {
	case strings.HasSuffix(name, "/forwarding"), strings.HasSuffix(name, "/stable_secret"):
		return "0"
	case name == GenerateMode:
		return "2"
	case name == DisableIPv6:
		return "3"
	}
	return "1"
}
