package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"ovn-k8s/lib/names"
)

// custom is the kind of a custom resource, as in the table or from an extension.
func custom() Kind {
	k := NewKind("routes", func(o *metav1.PartialObjectMetadata) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: KeepMeta(o.ObjectMeta)}
	}).optional()
	k.AddToScheme = func(s *runtime.Scheme) error {
		gv := schema.GroupVersion{Group: "test.example.com", Version: "v1"}
		s.AddKnownTypeWithName(gv.WithKind("Route"), &metav1.PartialObjectMetadata{})
		s.AddKnownTypeWithName(gv.WithKind("RouteList"), &metav1.PartialObjectMetadataList{})
		metav1.AddToGroupVersion(s, gv)
		return nil
	}
	return k
}

// T5: LIST and WATCH return equal objects of each kind.
func TestWatchTrimsAsListDoes(t *testing.T) {
	for _, k := range append(Kinds(), custom()) {
		t.Run(k.Name, func(t *testing.T) {
			full := filled(t, k)
			c := serve(t, k, full)
			ctx, cancel := context.WithCancel(t.Context())
			events := make(chan Event, 10)
			log := logrus.New()
			log.SetOutput(io.Discard)
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.Follow(ctx, logrus.NewEntry(log), Subscription{Kind: k, Send: func(e Event) { events <- e }})
			}()
			listed, watched := <-events, <-events
			cancel()
			<-done
			if !listed.Replace || watched.Object == nil {
				t.Fatalf("got %+v, then %+v", listed, watched)
			}
			for range 2 { // each subscriber reads the list
				if diff := cmp.Diff([]any{watched.Object}, slices.Collect(listed.Objects)); diff != "" {
					t.Errorf("LIST and WATCH differ (-watch +list)\n%s", diff)
				}
			}
			if listed.Kind.Name != k.Name || watched.Kind.Name != k.Name {
				t.Errorf("events of %s and %s", listed.Kind.Name, watched.Kind.Name)
			}
			if reflect.DeepEqual(watched.Object, full) {
				t.Error("nothing was trimmed")
			}
		})
	}
}

// T10: each kind has objects that it trims, and no others.
func TestEachKindIsDescribed(t *testing.T) {
	for _, k := range Kinds() {
		if err := k.Trim(k.Object.DeepCopyObject()); err != nil {
			t.Error(err)
		}
		if err := k.Trim(&corev1.Secret{}); err == nil {
			t.Errorf("%s: trims a Secret", k.Name)
		}
		if KindOf(k.Object).Name != k.Name {
			t.Errorf("%s is not the kind of its objects", k.Name)
		}
	}
}

// filled returns an object with a value in every field of the metadata and in the first level of spec and status.
func filled(t *testing.T, k Kind) runtime.Object {
	t.Helper()
	o := k.Object.DeepCopyObject()
	fill(reflect.ValueOf(o).Elem(), 4)
	v := reflect.ValueOf(o).Elem()
	m := metav1.ObjectMeta{
		Namespace: "default", Name: "x", UID: "u", ResourceVersion: "7", GenerateName: "g", Generation: 3,
		Labels: map[string]string{"any": "label"}, Annotations: map[string]string{"any": "annotation"},
		Finalizers: []string{"a/b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}
	for _, l := range []string{corev1.LabelTopologyZone, discoveryv1.LabelServiceName, names.LabelServiceProxy, names.LabelHeadless, names.LabelControlPlane} {
		m.Labels[l] = "used"
	}
	v.FieldByName("ObjectMeta").Set(reflect.ValueOf(m))
	version, err := k.Version()
	if err != nil {
		t.Fatal(err)
	}
	o.GetObjectKind().SetGroupVersionKind(version)
	return o
}

// fill sets strings, numbers and slices, depth levels deep.
func fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("s")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(8)
	case reflect.Struct:
		if _, ok := v.Interface().(json.Marshaler); ok || depth == 0 {
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), depth-1)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth-1)
	}
}

// serve starts an API server. It lists one object, then sends a MODIFIED event for it.
func serve(t *testing.T, k Kind, o runtime.Object) *Informers {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if path.Base(r.URL.Path) != k.Name {
			http.NotFound(w, r)
			return
		}
		text, _ := json.Marshal(o)
		gvk := o.GetObjectKind().GroupVersionKind()
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprintf(w, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"7"},"items":[%s]}`, gvk.Kind, apiVersion(gvk), text)
			return
		}
		fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`, text)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	i := NewInformers(&rest.Config{Host: s.URL})
	if err := i.add([]Kind{k}); err != nil {
		t.Fatal(err)
	}
	return i
}

func apiVersion(k schema.GroupVersionKind) string { return k.GroupVersion().String() }
