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

// optionalRetry is the delay before asking again for a missing or forbidden resource.
const optionalRetry = time.Minute

// missing reports whether err means that an optional resource does not exist or must not be read by us. If no
// objects of the kind were sent yet, it sends an empty list.
func (s *sink) missing(err error) bool {
	if !s.optional || !unavailable(err) {
		return false
	}
	if !s.known {
		_ = s.Replace(nil, "") // never fails
	}
	return true
}

// unavailable reports whether a resource does not exist, or must not be read by us.
func unavailable(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// WatchPodsOf is Watch for the pods of one node. Without permission to read pods there are none.
func (c *Cluster) WatchPodsOf(ctx context.Context, node string, log *logrus.Entry, send func(Event)) {
	lw := cache.NewListWatchFromClient(Pods.describe().client(c.clients), string(Pods), corev1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", node))
	follow(ctx, Pods, lw, &sink{kind: Pods, send: send, optional: true}, log)
}
