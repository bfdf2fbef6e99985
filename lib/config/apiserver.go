package config

import (
	"encoding/pem"
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func (r *Resolver) kubernetes(c *Config) {
	c.APIServer = r.apiServer()
	r.token(c)
	r.ca(c)
	c.ConfigNamespace = r.Value(configSpace)
	if !namespace.MatchString(c.ConfigNamespace) {
		r.Fail(configSpace, "want the name of a namespace: at most 63 lower case letters, digits and hyphens, no hyphen first or last")
	}
}

// namespace is a label of RFC 1123.
var namespace = regexp.MustCompile("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")

// WithAPIServer returns c with the API server of other, and the credentials for it. Both are of one program.
func (c Config) WithAPIServer(other Config) Config {
	c.Kubeconfig, c.APIServer = other.Kubeconfig, other.APIServer
	c.APIToken, c.APITokenFile = other.APIToken, other.APITokenFile
	c.APICA, c.APICAFile = other.APICA, other.APICAFile
	c.origins, c.found = slices.Clone(c.origins), maps.Clone(c.found)
	for i, o := range other.origins {
		if ofAPIServer(o.name) {
			c.origins[i], c.found[o.name] = o, other.found[o.name]
		}
	}
	return c
}

// HasAPIServer reports whether the settings of WithAPIServer were read and are valid, whatever others are.
func (c Config) HasAPIServer() bool {
	return c.found != nil && !slices.ContainsFunc(c.failed, ofAPIServer)
}

// ofAPIServer reports whether a setting is one of WithAPIServer.
func ofAPIServer(name string) bool {
	return slices.Contains([]string{kubeconfig, apiServer, apiToken, apiTokenFile, apiCA}, name)
}

// apiServer returns the URL. The default scheme is http, as in the Python version.
func (r *Resolver) apiServer() string {
	v := r.Value(apiServer)
	if v == "" {
		return ""
	}
	if strings.Contains(v, "@") {
		// Not by Fail: it would print the password.
		source := r.found[apiServer].source
		r.failAs(apiServer, fmt.Errorf("bad %s (from %s): it must not have a user or password; use %s", apiServer, source, apiToken))
		r.set(apiServer, mask, source)
		return ""
	}
	if !strings.Contains(v, "://") {
		v = "http://" + v
	}
	const want = "want HOST:PORT, http://HOST:PORT or https://HOST:PORT"
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") || u.RawQuery != "" || u.Fragment != "" {
		r.Fail(apiServer, want)
		return ""
	}
	if p := u.Port(); strings.HasSuffix(u.Host, ":") || (p != "" && !isPort(p)) {
		r.Fail(apiServer, want)
		return ""
	}
	v = strings.TrimRight(v, "/")
	r.set(apiServer, v, r.found[apiServer].source)
	return v
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// token chooses between a token and a token file: the source with higher precedence wins, and the token if both have
// the same source.
func (r *Resolver) token(c *Config) {
	token, file := r.found[apiToken], r.found[apiTokenFile]
	if token.value == "" && file.value == "" && r.sources.exists(ServiceAccountToken) {
		r.set(apiTokenFile, ServiceAccountToken, "service account")
	}
	switch {
	case token.value != "" && file.value != "" && rank(file.source) < rank(token.source):
		r.set(apiToken, "", "-")
	case token.value != "":
		r.set(apiTokenFile, "", "-")
	}
	if strings.ContainsAny(token.value, " \t\r\n") {
		r.Fail(apiToken, "a token has no white space")
	}
	c.APIToken = Secret(token.value)
	c.APITokenFile = r.Path(apiTokenFile)
}

// YieldKubeconfig drops a kubeconfig from the environment, such as that of an administrator's shell, if a source of higher
// precedence names the API server or the credentials for it, and these settings suffice. It returns that source, "" if the
// kubeconfig counts.
func YieldKubeconfig(r *Resolver) (to string) {
	variable := rank(environment)
	anonymous := r.Value(apiToken) == "" && r.Value(apiTokenFile) == ""
	if rank(r.Source(kubeconfig)) != variable || !r.Given(apiServer) || anonymous && strings.HasPrefix(r.Value(apiServer), "https:") {
		return ""
	}
	for _, name := range []string{apiServer, apiToken, apiTokenFile} {
		if source := r.Source(name); rank(source) < variable {
			r.set(kubeconfig, "", "-")
			return source
		}
	}
	return ""
}

// rank orders sources by precedence, highest first.
func rank(source string) int {
	switch {
	case source == "-" || source == "default" || source == "service account":
		return 4
	case strings.HasPrefix(source, "--"):
		return 0
	case strings.HasPrefix(source, "external_ids:"):
		return 1
	case strings.HasPrefix(source, environment):
		return 3
	}
	return 2 // the file, whose name begins the text
}

// ca takes the API server's CA as text or file. The default for a service account's token is the CA beside it.
func (r *Resolver) ca(c *Config) {
	if r.Value(apiCA) == "" {
		for _, d := range []origin{{value: defaultAPICA, source: "default"}, {value: ServiceAccountCA, source: "service account"}} {
			if r.sources.exists(d.value) {
				r.set(apiCA, d.value, d.source)
				break
			}
		}
	}
	v := r.Value(apiCA)
	switch {
	case v == "":
	case strings.HasPrefix(v, "-----BEGIN"):
		c.APICA = r.pem(v)
	case path.IsAbs(v):
		c.APICAFile = path.Clean(v)
	default:
		r.Fail(apiCA, "want PEM text that starts with -----BEGIN CERTIFICATE-----, or an absolute path")
	}
}

// pem checks PEM text and counts its certificates. The two characters \n may stand for a line break.
func (r *Resolver) pem(v string) string {
	text := strings.ReplaceAll(strings.ReplaceAll(v, `\r`, ""), `\n`, "\n") + "\n"
	n := 0
	for rest := []byte(text); ; n++ {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			// Not by Fail: it would print a possible private key.
			r.failAs(apiCA, fmt.Errorf("bad %s (from %s): it has a %s; want certificates only", apiCA, r.found[apiCA].source, block.Type))
			r.set(apiCA, "PEM text", r.found[apiCA].source)
			return ""
		}
	}
	if n == 0 {
		r.Fail(apiCA, "the PEM text is damaged: no certificate can be read")
		return ""
	}
	r.set(apiCA, fmt.Sprintf("PEM text, certificates: %d", n), r.found[apiCA].source)
	r.found[apiCA].exact = text
	return text
}
