package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// rollouts rolls the Deployment out again and again.
func (f *field) rollouts(ctx context.Context, preStop int64) error {
	if err := f.deploy(ctx, preStop); err != nil {
		return err
	}
	a := f.ask(ctx, f.places(), f.explain)
	for round := range f.rounds {
		if err := f.rollout(ctx); err != nil {
			a.stop()
			return err
		}
		a.mu.Lock()
		f.say("rollout %d of %d: %d connections, %d failed or late", round+1, f.rounds, a.tried, len(a.done))
		a.mu.Unlock()
	}
	f.result(a, fmt.Sprintf("%d rollouts", f.rounds))
	return nil
}

// rollout replaces all pods of the Deployment, as kubectl rollout restart does.
func (f *field) rollout(ctx context.Context) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"restarted":%q}}}}}`, time.Now().Format(time.RFC3339Nano))
	_, err := f.w.Kube.Client().AppsV1().Deployments(namespace).Patch(ctx, app, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return f.complete(ctx)
}
