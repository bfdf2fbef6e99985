package kinds

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
)

// A generator fills every field of objects at random, with values that have a meaning for features.
type generator struct{ *rand.Rand }

// counts are the numbers of objects of kinds in a world; 4 for others.
var counts = map[string]int{"pods": 10, "endpointslices": 8}

// objects returns some objects of a kind.
func (g generator) objects(k kube.Kind) (all []runtime.Object) {
	for i := range max(4, counts[k.Name]) {
		o := k.Object.DeepCopyObject()
		g.fill(reflect.ValueOf(o).Elem(), "", "", 10)
		m := accessor(o)
		m.SetUID(types.UID(fmt.Sprintf("%s-%d", k.Name, g.IntN(100))))
		m.SetCreationTimestamp(metav1.Unix(1e9+g.Int64N(3), 0))
		m.SetNamespace(g.one("a", "a", "a", "a", "a", "b"))
		m.SetName(fmt.Sprintf("o%d", i))
		switch o.(type) {
		case *corev1.Node:
			m.SetNamespace("")
			m.SetName(fmt.Sprintf("n%d", i))
		case *corev1.Namespace:
			m.SetNamespace("")
			m.SetName([]string{"a", "b", "c", metav1.NamespaceSystem}[i])
		case *networkingv1.ServiceCIDR:
			m.SetNamespace("")
		}
		m.SetLabels(g.labels())
		m.SetAnnotations(g.annotations())
		all = append(all, o)
	}
	return all
}

func (g generator) one(all ...string) string { return all[g.IntN(len(all))] }

// labels are some of those known to features, and some used by selectors.
func (g generator) labels() map[string]string {
	out := g.some(5, map[string][]string{
		corev1.LabelTopologyZone: {"z1", "z2"}, discoveryv1.LabelServiceName: {"o0", "o1", "o2"}, "k1": {"v1", "v2"}, "k2": {"v1", "v2"},
	})
	for _, key := range []string{names.LabelServiceProxy, names.LabelHeadless, names.LabelControlPlane} {
		if g.IntN(10) == 0 {
			out[key] = ""
		}
	}
	return out
}

func (g generator) annotations() map[string]string {
	return g.some(2, map[string][]string{
		"other": {"x"},
		names.Annotation: {
			`{"ip_address":"10.0.1.12/24","mac_address":"0a:58:0a:00:01:0c","gateway_ip":"10.0.1.1"}`,
			`{"ip_address":"10.0.2.13/24","mac_address":"0a:58:0a:00:02:0d","gateway_ip":"10.0.2.1"}`,
		},
		names.SubnetsAnnotation: {`{"default":"10.0.7.0/24"}`}, names.HostSubnetAnnotation: {"10.0.8.0/24", "foo"}, names.ChassisAnnotation: {"chassis2"},
		names.GatewayAnnotation: {`{"default":{"mode":"local","interface-id":"br-local_n1","mac-address":"0a:58:a9:fe:21:02","ip-address":"169.254.33.2/24"}}`},
		names.AnnotationUID:     {"pods-1", "pods-2"}, names.ACLLogging: {`{"deny": "info"}`, `{"allow": "info"}`, "bad"}, corev1.MirrorPodAnnotationKey: {"m1", "m2"},
	})
}

// some returns keys with one of their values, each with a probability of sixths.
func (g generator) some(sixths int, all map[string][]string) map[string]string {
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(all)) { // in a fixed order: a seed gives one world
		if g.IntN(6) < sixths {
			out[key] = g.one(all[key]...)
		}
	}
	return out
}

// enums are the values of types.
func (g generator) enum(t reflect.Type) (string, bool) {
	all := map[reflect.Type][]string{
		reflect.TypeFor[corev1.Protocol]():                     {"TCP", "TCP", "TCP", "TCP", "TCP", "UDP", "SCTP"},
		reflect.TypeFor[corev1.ServiceType]():                  {"ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer", "ExternalName"},
		reflect.TypeFor[corev1.ServiceAffinity]():              {"None", "ClientIP"},
		reflect.TypeFor[corev1.ServiceExternalTrafficPolicy](): {"Cluster", "Local"},
		reflect.TypeFor[corev1.ServiceInternalTrafficPolicy](): {"Cluster", "Local"},
		reflect.TypeFor[corev1.LoadBalancerIPMode]():           {"VIP", "Proxy"},
		reflect.TypeFor[corev1.PodPhase]():                     {"Pending", "Running", "Running", "Succeeded", "Failed"},
		reflect.TypeFor[corev1.ContainerRestartPolicy]():       {"Always", "Never"},
		reflect.TypeFor[corev1.NodeAddressType]():              {"InternalIP", "ExternalIP", "Hostname"},
		reflect.TypeFor[discoveryv1.AddressType]():             {"IPv4", "IPv4", "IPv4", "IPv4", "IPv4", "IPv4", "IPv4", "IPv6", "FQDN"},
		reflect.TypeFor[networkingv1.PolicyType]():             {"Ingress", "Egress"},
		reflect.TypeFor[metav1.LabelSelectorOperator]():        {"In", "NotIn", "Exists", "DoesNotExist"},
	}[t]
	if all == nil {
		return "", false
	}
	return g.one(all...), true
}

// text returns a string for a field in a struct of a type.
func (g generator) text(in, field string) string {
	switch f := strings.ToLower(field); {
	case f == "nodename":
		return g.one("n1", "n2", "n3", "n1", "n2", "")
	case f == "clusterip", f == "clusterips":
		return g.one("10.96.0.10", "10.96.0.11", "10.96.0.12", "10.96.0.13", "10.96.0.14", "fd02::10", "fd02::11", "None")
	case f == "externalips", f == "ip", f == "loadbalancerip", f == "address", f == "addresses":
		return fmt.Sprintf(g.one("198.51.100.%d", "10.0.1.%d", "10.0.1.%d", "10.0.2.%d", "10.0.2.%d", "fd00:0:0:1::%d"), 3+g.IntN(6))
	case f == "hostip":
		return g.one("", "192.0.2.1", "0.0.0.0", "bad")
	case f == "loadbalancersourceranges", f == "cidr", f == "cidrs":
		return g.one("203.0.113.0/24", "10.99.0.0/24", "2001:db8::/64")
	case f == "except":
		return g.one("203.0.113.0/28", "10.99.0.0/28", "2001:db8::/80")
	case f == "key":
		return g.one("k1", "k2")
	case f == "values":
		return g.one("v1", "v2")
	case in == "ForZone":
		return g.one("z1", "z2")
	case in == "ForNode":
		return g.one("n1", "n2")
	case f == "name":
		return g.one("http", "http", "dns", "")
	}
	return g.one("s1", "s2")
}

// fill fills a field and the fields below it, mostly as the API server would let them through.
func (g generator) fill(v reflect.Value, in, field string, depth int) {
	g.fillAny(v, in, field, depth)
	if g.IntN(10) == 0 {
		return
	}
	switch o := v.Addr().Interface().(type) {
	case *networkingv1.NetworkPolicyPeer:
		if g.IntN(3) > 0 {
			o.IPBlock = nil
		} else {
			o.PodSelector, o.NamespaceSelector = nil, nil
		}
	case *networkingv1.NetworkPolicyPort:
		if o.Port != nil && o.Port.Type == intstr.String {
			o.EndPort = nil
		}
	case *metav1.LabelSelector:
		if g.IntN(2) == 0 {
			o.MatchExpressions = nil
		}
	case *metav1.LabelSelectorRequirement:
		if o.Operator == metav1.LabelSelectorOpExists || o.Operator == metav1.LabelSelectorOpDoesNotExist {
			o.Values = nil
		}
	}
}

func (g generator) fillAny(v reflect.Value, in, field string, depth int) {
	switch v.Addr().Interface().(type) {
	case *metav1.ObjectMeta, *metav1.TypeMeta, *resource.Quantity, *metav1.FieldsV1, *runtime.RawExtension:
		return
	case *metav1.Time:
		v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1e9+g.Int64N(100), 0))))
		return
	case *intstr.IntOrString:
		v.Set(reflect.ValueOf([]intstr.IntOrString{intstr.FromString("http"), intstr.FromInt32(80 + g.Int32N(3))}[g.IntN(2)]))
		return
	}
	if depth == 0 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		if s, ok := g.enum(v.Type()); ok {
			v.SetString(s)
		} else {
			v.SetString(g.text(in, field))
		}
	case reflect.Bool:
		v.SetBool(g.IntN(2) == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(g.number(field))
	case reflect.Pointer:
		if g.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			g.fill(v.Elem(), in, field, depth-1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				g.fill(v.Field(i), v.Type().Name(), v.Type().Field(i).Name, depth-1)
			}
		}
	case reflect.Slice:
		n := min(2, g.IntN(5)) // mostly 2
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			g.fill(v.Index(i), in, field, depth-1)
		}
	case reflect.Map:
		if m, ok := v.Addr().Interface().(*map[string]string); ok {
			*m = map[string]string{}
			if g.IntN(2) == 0 {
				(*m)[g.text(in, "key")] = g.text(in, "values")
			}
		}
	}
}

func (g generator) number(field string) int64 {
	switch strings.ToLower(field) {
	case "nodeport", "healthchecknodeport":
		return 30000 + g.Int64N(20)
	case "hostport":
		return []int64{0, 8080, 8081}[g.IntN(3)]
	case "endport":
		return 90 + g.Int64N(3)
	case "port", "containerport":
		return 80 + g.Int64N(3)
	}
	return g.Int64N(5)
}
