package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/reconcile"
)

// Minimum and maximum delay between tries to reach the API server.
const (
	retryInterval = 100 * time.Millisecond
	retryMax      = 3 * time.Second
)

func newBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(retryInterval), backoff.WithMaxInterval(retryMax), backoff.WithMaxElapsedTime(0))
}

// Retry calls try until it succeeds, with delays growing to 3 s, and failed after each failure. It returns the error
// of ctx if ctx ends first.
func Retry(ctx context.Context, try func() error, failed func(error)) error {
	return backoff.RetryNotify(try, backoff.WithContext(newBackoff(), ctx), func(err error, _ time.Duration) { failed(err) })
}

// Again returns a function for failed of Retry: it warns once of each reason.
func Again(log *logrus.Entry, what string) func(error) {
	last := ""
	return func(err error) {
		if reason := reconcile.Reason(err); reason != last {
			last = reason
			log.Warnf("trying again: %s%v", what, err)
		}
	}
}

// Unreachable reports whether the API server cannot be reached or is not ready, so that waiting may help. A refusal,
// as of credentials, is not included.
func Unreachable(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) || errors.Is(err, context.DeadlineExceeded) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err)
}

// Outage reports whether the API server did not answer or could not process the request at present. A refused request
// is not included.
func Outage(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	}
	var request *url.Error
	return errors.As(err, &request) || errors.Is(err, context.DeadlineExceeded)
}

// Refuses reports whether the API server rejects the token, or the account lacks a permission.
func Refuses(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }

// Waiting is the reason to wait for the API server, or for other rights, after an error; "": it is another error.
func Waiting(err error) string {
	switch {
	case err == nil:
		return ""
	case Refuses(err):
		return fmt.Sprintf("the API server refuses this host's token or rights: %v; renew the token or the kubeconfig, or grant the rights", err)
	case Unreachable(err) || Outage(err):
		return fmt.Sprintf("the API server is not available: %v", err)
	}
	return ""
}

// Cause returns the error without the object it is about, so that equal causes can be compared: the API server's
// reason, or the innermost error.
func Cause(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err.Error()
}
