package config_test

import (
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/config"
)

// A place is one name of a setting, in one source.
type place struct {
	text string // as Show prints it
	put  func(s *config.Sources, value string)
}

// places lists the names of a setting, those with precedence first.
func places(set config.Setting) (out []place) {
	names := func(all config.Names, prefix string, put func(*config.Sources, string, string)) {
		for _, old := range []bool{true, false} {
			for _, n := range all {
				if n.Old == old && n.Text != "" && n.Text != "KUBERNETES_SERVICE_PORT" {
					out = append(out, place{prefix + n.Text, func(s *config.Sources, v string) { put(s, n.Text, v) }})
				}
			}
		}
	}
	names(set.Flags, "--", func(s *config.Sources, k, v string) { s.Flags[k] = v })
	names(config.Named(set.ExternalID), "external_ids:", func(s *config.Sources, k, v string) { s.ExternalIDs[k] = v })
	before := len(out)
	names(set.Keys, "", func(s *config.Sources, k, v string) { s.File[k] = v })
	for i := range out[before:] {
		p := &out[before+i]
		if section, key, ok := strings.Cut(p.text, "."); ok {
			p.text = "[" + section + "] " + key
		}
		p.text = "ovn_k8s.conf: " + p.text
	}
	names(set.Env, "environment: ", func(s *config.Sources, k, v string) {
		if host, ok := strings.CutPrefix(v, "https://"); ok && k == "KUBERNETES_SERVICE_HOST" {
			s.Env["KUBERNETES_SERVICE_PORT"] = "443"
			if h, port, err := net.SplitHostPort(host); err == nil {
				host, s.Env["KUBERNETES_SERVICE_PORT"] = h, port
			}
			v = host
		}
		s.Env[k] = v
	})
	return out
}

// shown returns the value and the source of a setting in the output of --show-config.
func shown(t *testing.T, c config.Config, name string) (value, source string) {
	t.Helper()
	for line := range strings.Lines(c.Show()) {
		if words := strings.Fields(line); words[0] == name {
			return words[1], strings.Join(words[2:], " ")
		}
	}
	t.Fatalf("%s is not shown", name)
	return "", ""
}

// checkPlaces checks for each name of each setting that its value is used, and that it wins over the next one, and
// over the default.
func checkPlaces(t *testing.T, settings []config.Setting, values map[string]string) {
	for _, set := range settings {
		all := places(set)
		for i, p := range all {
			s := config.Sources{Settings: settings, Flags: map[string]string{}, ExternalIDs: map[string]string{}, File: map[string]string{}, Env: map[string]string{}}
			value := values[set.Name]
			p.put(&s, value)
			if i+1 < len(all) {
				all[i+1].put(&s, "a lower source")
			}
			c, err := config.Resolve(s)
			got, source := shown(t, c, set.Name)
			if set.Secret {
				value = "********"
			}
			if err != nil || got != value && set.Name != "k8s-api-server" || source != p.text {
				t.Errorf("%s by %s: %s %s, %v", set.Name, p.text, got, source, err)
			}
		}
	}
}

func TestEverySourceOfEverySetting(t *testing.T) {
	checkPlaces(t, config.Settings(), valid())
}

// valid returns samples with a valid value for each setting.
func valid() map[string]string {
	values := maps.Clone(samples)
	values["ovn-mode"] = "overlay"
	return values
}

func TestNames(t *testing.T) {
	settings := config.Settings()
	i := slices.IndexFunc(settings, func(s config.Setting) bool { return s.Name == "mtu" })
	settings[i].Flags = config.Named("mtu", "size").Old("old-mtu", "older-mtu")
	settings[i].Keys = config.Named("mtu", "pods.mtu-size").Old("pods.mtu")
	settings[i].Env = config.Named("MTU").Old("OLD_MTU")
	checkPlaces(t, settings, valid())
	if got := settings[i].Flags.Current(); got != "mtu" {
		t.Errorf("the name of today is %q", got)
	}
	for _, want := range []string{"`--mtu`, `--size`, `--old-mtu` (old), `--older-mtu` (old)", "`mtu`, `[pods] mtu-size`, `[pods] mtu` (old)", "`MTU`, `OLD_MTU` (old)"} {
		if !strings.Contains(config.Markdown(settings), want) {
			t.Errorf("%s is not in the table", want)
		}
	}
	c, err := config.Resolve(config.Sources{Settings: settings, File: map[string]string{
		"Default.MTU": "1300", "PODS.MTU_Size": "1200", "pods.mtv": "1", "default.mtuu": "1", "other.mtu": "1",
	}})
	if value, source := shown(t, c, "mtu"); err != nil || value != "1300" || source != "ovn_k8s.conf: MTU" {
		t.Errorf("%s %s, %v", value, source, err)
	}
	if diff := cmp.Diff([]string{
		"ovn_k8s.conf: [pods] mtv is no setting: it is ignored; did you mean [pods] mtu?",
		"ovn_k8s.conf: mtuu is no setting: it is ignored; did you mean mtu?",
	}, c.Ignored); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	_, err = config.Resolve(config.Sources{Settings: settings, File: map[string]string{"pods.mtu": "x"}})
	if want := `bad mtu "x" (from ovn_k8s.conf: [pods] mtu): want a number from 576 to 65535`; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
