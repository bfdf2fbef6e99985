//go:build !kubernetes1.29

package controlplane

import (
	"context"
	"errors"

	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	managerconfig "k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	manageroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
)

// completeAPIServer checks the API server's options and returns a function that runs it.
func completeAPIServer(ctx context.Context, o *apiserveroptions.ServerRunOptions) (run func() error, err error) {
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return nil, err
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return nil, errors.Join(errs...)
	}
	return func() error { return apiserver.Run(ctx, completed) }, nil
}

func configureManager(ctx context.Context, o *manageroptions.KubeControllerManagerOptions) (*managerconfig.Config, error) {
	return o.Config(ctx, manager.KnownControllers(), manager.ControllersDisabledByDefault(), manager.ControllerAliases())
}
