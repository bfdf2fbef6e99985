package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apifields "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
)

// client returns a client for the kind's group and version. Kinds of Kubernetes itself come in protobuf.
func (k Kind) client(config *rest.Config, shared *http.Client) (rest.Interface, error) {
	s, err := schemeOf(k)
	if err != nil {
		return nil, err
	}
	gvk, err := k.Version()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	gv := gvk.GroupVersion()
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	if k.AddToScheme == nil {
		preferProtobuf(config)
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(s).WithoutConversion()
	c, err := rest.RESTClientForConfigAndClient(config, shared)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", k.Name, err)
	}
	return c, nil
}

func preferProtobuf(config *rest.Config) {
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
}

// source is the input of a reflector: objects of a kind, trimmed.
type source struct {
	*cache.ListWatch
	kind     Kind
	client   rest.Interface
	selector apifields.Selector
	latest   bool // see Subscription.Latest
}

// newSource returns the source of all objects of a kind, or of those on one node.
func newSource(k Kind, c rest.Interface, node string, latest bool) source {
	selector := apifields.Everything()
	if node != "" {
		selector = apifields.OneTermEqualSelector(k.field, node)
	}
	return source{cache.NewListWatchFromClient(c, k.Name, corev1.NamespaceAll, selector), k, c, selector, latest}
}

// IsWatchListSemanticsUnSupported makes the reflector begin with LIST, not with a WATCH of all objects (WatchList), the
// default of client-go since 0.35: that has no pages, and decodes each object in full.
func (s source) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext implements cache.ListerWithContext. It reads the latest state page by page, if that is wanted, and trims
// and packs each page, because all objects in full would take hundreds of megabytes in a large cluster.
//
// Other lists are as the reflector says: from the API server's cache, which has an index of the pods of a node. Without
// that, API servers before 1.34 would read all objects from etcd, for each host, and all at once after their restart.
func (s source) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	var packing errgroup.Group
	packing.SetLimit(1) // or pages of a fast server would take much memory
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return s.page(ctx, options, &packing)
	})
	if s.latest {
		options.ResourceVersion, options.ResourceVersionMatch = "", ""
	} else {
		pages.PageSize = options.Limit
	}
	list, _, err := pages.List(ctx, options)
	if err2 := packing.Wait(); err == nil {
		err = err2
	}
	return list, err
}

// page reads a page of the list. Of an answer in protobuf, only the fields in use are decoded, while the next page is
// on its way.
func (s source) page(ctx context.Context, options metav1.ListOptions, packing *errgroup.Group) (runtime.Object, error) {
	options.FieldSelector = s.selector.String()
	answer := s.client.Get().Resource(s.kind.Name).VersionedParams(&options, metav1.ParameterCodec).Do(ctx)
	if err := answer.Error(); err != nil {
		return nil, err
	}
	var form string
	if answer.ContentType(&form); s.kind.wire != nil && form == runtime.ContentTypeProtobuf {
		body, err := answer.Raw()
		if err != nil {
			return nil, err
		}
		page, fill, err := s.kind.packBody(body)
		if err == nil {
			packing.Go(fill)
		}
		return page, err
	}
	page, err := answer.Get()
	if err != nil {
		return nil, err
	}
	return s.kind.pack(page)
}

// WatchWithContext implements cache.WatcherWithContext. It trims objects as ListWithContext does, and hides refused
// connections from the reflector, which would wait.
func (s source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := s.ListWatch.WatchWithContext(ctx, options)
	if utilnet.IsConnectionRefused(err) {
		return nil, errors.New(err.Error())
	}
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if e.Type == watch.Bookmark || e.Type == watch.Error {
			return e, true // handled by the reflector
		}
		if err := s.kind.Trim(e.Object); err != nil {
			return watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(err).ErrStatus}, true
		}
		return e, true
	}), nil
}
