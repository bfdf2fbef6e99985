// Package kubeconfig connects to the Kubernetes API server as a kubeconfig file says: its current context, with a token or
// a client certificate. It is separate from lib/kube/client, because the CNI plugin needs no such file.
package kubeconfig

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Read returns the connection of a kubeconfig's current context, for a program with this name, without client-side rate
// limits. Files named there are relative to its directory, and changes of certificates and tokens in them are followed.
// The error is one line with the file and what would be right.
func Read(file, userAgent string) (*rest.Config, error) {
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("kubeconfig file not found: %w", err)
	}
	c, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, bad(file, err)
	}
	if err := check(c); err != nil {
		return nil, bad(file, err)
	}
	if err := clientcmd.ResolveLocalPaths(c); err != nil {
		return nil, bad(file, err)
	}
	out, err := clientcmd.NewNonInteractiveClientConfig(*c, c.CurrentContext, nil, nil).ClientConfig()
	if err != nil {
		return nil, bad(file, err)
	}
	// as lib/kube/client: the server limits requests itself
	out.UserAgent, out.QPS, out.WarningHandler = userAgent, -1, rest.NoWarnings{}
	return out, nil
}

func bad(file string, err error) error {
	return fmt.Errorf("bad kubeconfig %s: %s", file, strings.ReplaceAll(err.Error(), "\n", "; "))
}

// check finds what client-go would replace by a default, or run.
func check(c *api.Config) error {
	if c.CurrentContext == "" {
		return errors.New("it has no current-context; want the name of one of its contexts")
	}
	context := c.Contexts[c.CurrentContext]
	if context == nil {
		return fmt.Errorf("its current-context %q is none of its contexts", c.CurrentContext)
	}
	cluster := c.Clusters[context.Cluster]
	switch {
	case cluster == nil:
		return fmt.Errorf("the cluster %q of context %q is none of its clusters", context.Cluster, c.CurrentContext)
	case !strings.HasPrefix(cluster.Server, "http://") && !strings.HasPrefix(cluster.Server, "https://"):
		return fmt.Errorf("server %q of cluster %q: want http://HOST:PORT or https://HOST:PORT", cluster.Server, context.Cluster)
	}
	user := c.AuthInfos[context.AuthInfo]
	switch {
	case user == nil && context.AuthInfo != "":
		return fmt.Errorf("the user %q of context %q is none of its users", context.AuthInfo, c.CurrentContext)
	case user != nil && (user.Exec != nil || user.AuthProvider != nil):
		return fmt.Errorf("user %q gets its credentials from another program, which is not supported; want a token, a file with one, or a client certificate", context.AuthInfo)
	}
	return nil
}
