package kube

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/cenkalti/backoff/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// retryInterval and retryMax are how long to wait for the API server between
// two tries, at first and at the most.
const (
	retryInterval = 100 * time.Millisecond
	retryMax      = 3 * time.Second
)

func newBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(retryInterval), backoff.WithMaxInterval(retryMax), backoff.WithMaxElapsedTime(0))
}

// Retry calls try until it succeeds or ctx ends, whose error it then returns.
// failed is told of each failure; the intervals grow to 3 s.
func Retry(ctx context.Context, try func() error, failed func(error)) error {
	return backoff.RetryNotify(try, backoff.WithContext(newBackoff(), ctx), func(err error, _ time.Duration) { failed(err) })
}

// Unreachable reports whether err says that the API server cannot be reached or
// is not ready, so that waiting may help. That it refuses us does not count.
func Unreachable(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) || errors.Is(err, context.DeadlineExceeded) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err)
}

// Outage reports whether err says that the API server did not answer, or that it
// could not do so at present. What it has refused does not count.
func Outage(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	}
	var request *url.Error
	return errors.As(err, &request) || errors.Is(err, context.DeadlineExceeded)
}

// Refuses reports whether the API server does not accept the token, or the account
// lacks a right.
func Refuses(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }

// Cause says why something failed without saying what it was about, so that
// equal causes can be told: the API server's reason, or the innermost error.
func Cause(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err.Error()
}
