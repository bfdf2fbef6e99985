package kube

import (
	"k8s.io/client-go/rest"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/kube/client"
	"ovn-k8s/lib/kube/kubeconfig"
)

// Connect returns the connection to the API server of a configuration: its kubeconfig, if it has one, else its other
// settings. token returns the present token; nil: that of the configuration. An error names the wrong setting or file.
func Connect(c config.Config, token func() string, userAgent string) (*rest.Config, error) {
	if c.Kubeconfig != "" {
		return kubeconfig.Read(c.Kubeconfig, userAgent)
	}
	api := client.FromConfig(c, userAgent)
	if token != nil {
		api.Token = token
	}
	return api.REST()
}
