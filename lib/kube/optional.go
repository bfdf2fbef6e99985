package kube

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
)

// optionalRetry is how long to wait before asking again for what the API server
// does not have, or does not give us.
const optionalRetry = time.Minute

// missing says that there are no objects if the API server does not have them or
// does not give them to us, everything goes on without them, and none were known
// before. It reports whether that is why err happened.
func (s *sink) missing(err error) bool {
	if !s.optional || !withheld(err) {
		return false
	}
	if !s.known {
		_ = s.Replace(nil, "") // never fails
	}
	return true
}

// withheld reports whether the API server does not have a kind of objects, or does
// not let us read it.
func withheld(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// WatchPodsOf is Watch for the pods of one node. Without the right to read pods
// there are none.
func (c *Cluster) WatchPodsOf(ctx context.Context, node string, log *logrus.Entry, send func(Event)) {
	lw := cache.NewListWatchFromClient(Pods.describe().client(c.clients), string(Pods), corev1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", node))
	follow(ctx, Pods, lw, &sink{kind: Pods, send: send, optional: true}, log)
}
