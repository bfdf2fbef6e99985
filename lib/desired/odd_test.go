package desired

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// oddWords are the strings in odd objects: valid values in wrong places.
var oddWords = []string{
	"", "", "default", "a", "n0", "n1", "kubernetes", "None", "TCP", "UDP", "SCTP", "http", "_", "é", "node/x", "IPv4", "IPv6", "FQDN", "In", "NotIn", "Exists",
	"Ingress", "Egress", "Local", "Cluster", "ClientIP", "NodePort", "LoadBalancer", "ClusterIP", "ExternalName", "InternalIP", "Proxy", "VIP", "Running", "Failed", "Always",
	"0.0.0.0", "255.255.255.255", "127.0.0.1", "192.0.2.1", "10.0.1.11", "172.16.0.1", "::", "::1", "fe80::1%eth0", "::ffff:192.0.2.1", "fd00:0:0:1::3", "fd02::1",
	"0.0.0.0/0", "10.0.0.0/8", "::ffff:10.0.0.0/104", "::/0", "fd00::/64", "10.0.0.0/33", "255.255.255.255/32",
	`{"deny": "alert"}`, `{"ip_address":"10.0.1.12/29,fd00:0:0:1::9/64","mac_address":"0a:58:0a:00:01:0c","gateway_ip":"10.0.1.9,fd00:0:0:1::1"}`,
}

// odd fills a value at random: half of all pointers are nil, lists are short, and numbers are limits.
func odd(r *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(pick(r, oddWords...))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(pick[int64](r, 0, 1, 80, 80, 8080, 30000, 65535, 65536, -1, 1<<31-1, -1<<31))
	case reflect.Pointer:
		if depth > 0 && r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			odd(r, v.Elem(), depth-1)
		}
	case reflect.Slice:
		if depth > 0 && v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), r.IntN(4), 4))
			for i := range v.Len() {
				odd(r, v.Index(i), depth-1)
			}
		}
	case reflect.Map:
		if v.Type().Key().Kind() == reflect.String && v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.MakeMap(v.Type()))
			for range r.IntN(3) {
				key := pick(r, append([]string{names.Annotation, names.AnnotationUID, names.ACLLogging, discoveryv1.LabelServiceName, corev1.LabelTopologyZone}, oddWords...)...)
				v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), reflect.ValueOf(pick(r, oddWords...)))
			}
		}
	case reflect.Struct:
		if _, isTime := v.Interface().(metav1.Time); isTime {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Field(i).CanSet() {
				odd(r, v.Field(i), depth)
			}
		}
	}
}

// With any objects in the API server, the watcher goes on: invalid input is a Problem of its unit.
func TestOddObjects(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := NewWorld()
		w.Put(servicecidr.Ranges(prefixes("172.16.0.0/16")))
		w.Put(withGateways(t, cluster(t, 0, 1), 0))
		for range 200 {
			kinds := []any{&corev1.Pod{}, &corev1.Node{}, &corev1.Namespace{}, &corev1.Service{}, &discoveryv1.EndpointSlice{}, &networkingv1.NetworkPolicy{}, &networkingv1.ServiceCIDR{}}
			o := pick(r, kinds...)
			odd(r, reflect.ValueOf(o).Elem(), 8)
			m := o.(metav1.Object)
			m.SetNamespace(pick(r, "default", "eth1"))
			m.SetName(pick(r, "kubernetes", "n0", "n1", "gw0", "web"))
			dirty := map[nb.Unit]bool{}
			for _, touched := range [][]nb.Unit{w.Put(o), w.Allocate(), w.Units()} {
				for _, u := range touched {
					dirty[u] = true
				}
			}
			for u := range dirty {
				rows, err := w.Rows(u)
				_ = fmt.Sprint(rows, err)
				w.Pods.Annotation(u)
				w.Services.Service(u)
				w.Services.ServiceSummaries(u)
				w.HostPorts(u)
				_, _ = w.Policies.Show(u)
			}
			if r.IntN(3) == 0 {
				w.Remove(o)
			}
			w.Compact()
		}
	}
}
