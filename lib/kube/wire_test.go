package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/randfill"
)

// Decoding the fields in use of any object gives the same as decoding and trimming all of it.
func TestWireHasWhatIsKept(t *testing.T) {
	filler := randfill.NewWithSeed(1).NilChance(0.2).NumElements(1, 3).MaxDepth(12)
	for _, k := range Kinds() {
		if k.wire == nil {
			continue
		}
		for range 200 {
			whole := k.Object.DeepCopyObject()
			filler.Fill(whole)
			text, err := whole.(interface{ Marshal() ([]byte, error) }).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			picked, err := k.wire.pick(nil, text)
			if err != nil {
				t.Fatal(err)
			}
			if len(picked) >= len(text) {
				t.Errorf("%s: %d of %d bytes are read", k.Name, len(picked), len(text))
			}
			want, got := trimmed(t, k, text), trimmed(t, k, picked)
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("%s: %s", k.Name, d)
			}
		}
	}
}

// trimmed decodes and trims an object, as JSON.
func trimmed(t *testing.T, k Kind, text []byte) string {
	t.Helper()
	o := (&packed{object: k.Object}).empty()
	if err := o.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	if err := k.Trim(o); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func body(t *testing.T, list runtime.Object) []byte {
	t.Helper()
	text, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), list)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// read reads a page whole.
func read(k Kind, body []byte) (runtime.Object, error) {
	page, fill, err := k.packBody(body)
	if err == nil {
		err = fill()
	}
	return page, err
}

// A page in protobuf is read like a decoded one, and a damaged one is an error.
func TestPackBody(t *testing.T) {
	k := KindOf(&corev1.Pod{})
	left := int64(7)
	list := &corev1.PodList{
		ListMeta: metav1.ListMeta{ResourceVersion: "42", Continue: "more", RemainingItemCount: &left},
		Items: []corev1.Pod{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one", Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{NodeName: "n1"}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "two"}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}},
		},
	}
	text := body(t, list)
	got, err := read(k, text)
	if err != nil {
		t.Fatal(err)
	}
	want, err := k.pack(list)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, wrong := range [][]byte{nil, []byte("{}"), text[:len(text)/2]} {
		if _, err := read(k, wrong); err == nil {
			t.Errorf("%d bytes: no error", len(wrong))
		}
	}
}

func FuzzPackBody(f *testing.F) {
	k := KindOf(&corev1.Pod{})
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = read(k, text) // it does not panic
	})
}

// A list of several pages has the objects of all, although pages are decoded while the next ones are read.
func TestPages(t *testing.T) {
	pages, next := map[string]*corev1.PodList{}, ""
	for i := range 5 {
		list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "42"}}
		for n := range 3 {
			list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", 3*i+n)}})
		}
		if i < 4 {
			list.Continue = fmt.Sprint(i + 1)
		}
		pages[next], next = list, list.Continue
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = w.Write(body(t, pages[r.URL.Query().Get("continue")]))
	}))
	defer server.Close()
	c, err := NewCluster(&rest.Config{Host: server.URL}, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, err := c.ListOn(t.Context(), KindOf(&corev1.Pod{}), "")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for o := range all.Objects {
		if name := o.(*corev1.Pod).Name; name != fmt.Sprint("pod-", n) {
			t.Errorf("object %d is %s", n, name)
		}
		n++
	}
	if n != 15 {
		t.Errorf("%d objects, want 15", n)
	}
}
