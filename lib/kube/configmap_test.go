package kube

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// A shelf is an API server with one ConfigMap. It lists the methods of its requests.
type shelf struct {
	cm      *corev1.ConfigMap // nil: there is none
	version int
	methods []string
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.methods = append(s.methods, r.Method)
	resource := schema.GroupResource{Resource: "configmaps"}
	var sent corev1.ConfigMap
	if r.Method != http.MethodGet {
		text, _ := io.ReadAll(r.Body)
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, &sent); err != nil {
			panic(err)
		}
	}
	answer, status := any(nil), http.StatusOK
	fail := func(err *apierrors.StatusError) { answer, status = err.ErrStatus, int(err.ErrStatus.Code) }
	switch {
	case r.Method != http.MethodPost && s.cm == nil:
		fail(apierrors.NewNotFound(resource, "c"))
	case r.Method == http.MethodPut && sent.ResourceVersion != s.cm.ResourceVersion:
		fail(apierrors.NewConflict(resource, "c", nil))
	case r.Method == http.MethodGet:
		answer = s.cm
	default:
		s.set(&sent)
		answer = s.cm
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

// set stores another version.
func (s *shelf) set(cm *corev1.ConfigMap) {
	s.version++
	s.cm = cm.DeepCopy()
	s.cm.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	s.cm.ResourceVersion = strconv.Itoa(s.version)
}

// A ConfigMap is read only for the first write and after changes by others, and keeps what others added to it.
func TestWriteConfigMap(t *testing.T) {
	s := &shelf{}
	server := httptest.NewServer(s)
	defer server.Close()
	c, err := NewCluster(&rest.Config{Host: server.URL}, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var last *corev1.ConfigMap
	write := func(what, data, methods string) {
		t.Helper()
		want := map[string]string{"data": data}
		s.methods = nil
		last, err = c.WriteConfigMap(t.Context(), types.NamespacedName{Namespace: "a", Name: "c"}, want, last)
		if got := strings.Join(s.methods, " "); err != nil || got != methods || !maps.Equal(s.cm.Data, want) || last.ResourceVersion != s.cm.ResourceVersion || last.Data != nil {
			t.Errorf("%s: %v, %s, want %s; %v", what, err, got, methods, s.cm)
		}
	}
	write("the first", "1", "GET POST")
	write("the second", "2", "PUT")
	write("the third", "3", "PUT")
	labelled := s.cm.DeepCopy()
	labelled.Labels = map[string]string{"by": "others"}
	s.set(labelled)
	write("after a change by others", "4", "PUT GET PUT")
	write("the next", "5", "PUT")
	if s.cm.Labels["by"] != "others" {
		t.Errorf("the labels are %v", s.cm.Labels)
	}
	s.cm = nil
	write("after its removal", "6", "PUT GET POST")
	last = nil
	write("another process, nothing new", "6", "GET")
	write("another process", "7", "PUT")
}
