package kinds

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"ovn-k8s/lib/kube"
	"ovn-k8s/test/kubetest"
)

// samples has an object of each kind, with all kept fields and some others. The API server adds more.
const samples = `
apiVersion: v1
kind: Namespace
metadata: {name: samples, labels: {team: a}, annotations: {k8s.ovn.org/acl-logging: '{"deny": "info"}', other: x}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: samples}
---
apiVersion: v1
kind: Node
metadata: {name: sample, labels: {topology.kubernetes.io/zone: z1, node-role.kubernetes.io/control-plane: "", other: x}}
spec: {podCIDR: 10.1.0.0/24, taints: [{key: a, effect: NoSchedule}]}
status:
  addresses: [{type: InternalIP, address: 192.0.2.1}, {type: Hostname, address: sample}]
  capacity: {cpu: "1"}
---
apiVersion: v1
kind: Pod
metadata: {name: sample, namespace: samples, labels: {app: web}, annotations: {ovn: '{"ip_address":"10.1.0.3/24"}', other: x}}
spec:
  nodeName: sample
  initContainers: [{name: i, image: none, restartPolicy: Always, ports: [{name: side, containerPort: 81}]}]
  containers: [{name: c, image: none, command: [sleep], ports: [{name: http, containerPort: 80, hostPort: 8080}]}, {name: d, image: none}]
---
apiVersion: v1
kind: Service
metadata: {name: sample, namespace: samples, labels: {service.kubernetes.io/service-proxy-name: other, app: web}}
spec:
  type: LoadBalancer
  selector: {app: web}
  externalIPs: [198.51.100.1]
  loadBalancerSourceRanges: [203.0.113.0/24]
  externalTrafficPolicy: Local
  internalTrafficPolicy: Local
  sessionAffinity: ClientIP
  publishNotReadyAddresses: true
  ports: [{name: http, port: 80, targetPort: http}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: sample, namespace: samples, labels: {kubernetes.io/service-name: sample, other: x}}
addressType: IPv4
endpoints:
- {addresses: [10.1.0.3], nodeName: sample, hostname: h, zone: z1, conditions: {ready: true, serving: true, terminating: false}, targetRef: {kind: Pod, name: sample}, hints: {forZones: [{name: z1}]}}
ports: [{name: http, port: 80, protocol: TCP, appProtocol: http}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: sample, namespace: samples, labels: {other: x}}
spec:
  podSelector: {matchExpressions: [{key: app, operator: In, values: [web]}]}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}], ports: [{port: http}, {port: 90, endPort: 99}]}]
  egress: [{to: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.0/28]}}]}]
`

const sampleOfServiceCIDR = `
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: sample, labels: {other: x}}
spec: {cidrs: [10.99.0.0/24]}
`

// served are the kinds of this API server.
func served() []kube.Kind {
	return slices.DeleteFunc(kube.Kinds(), func(k kube.Kind) bool {
		return k.Is(&networkingv1.ServiceCIDR{}) && !kubetest.Has(kubetest.ServiceCIDRs)
	})
}

// T5, on a real API server: for each kind, an object of LIST equals the one of WATCH.
func TestListEqualsWatch(t *testing.T) {
	needCluster(t)
	api, err := kube.NewCluster(cluster.Config(), "test", nil)
	must(t, err)
	defer api.Close()
	seen := newObserver(t, api)
	must(t, cluster.Apply(t.Context(), []byte(samples)))
	if kubetest.Has(kubetest.ServiceCIDRs) {
		must(t, cluster.Apply(t.Context(), []byte(sampleOfServiceCIDR)))
	}
	defer removeSamples(t)
	for _, k := range served() {
		t.Run(k.Name, func(t *testing.T) {
			eventually(t, "LIST has an object that WATCH has in the same version", func() bool {
				events, err := api.List(t.Context(), k)
				must(t, err)
				compared := false
				for o := range events[0].Objects {
					watched := seen.watched(k, o)
					if watched == nil {
						continue
					}
					compared = compared || nameOf(o) == "sample" || k.Name == "namespaces" && nameOf(o) == "samples"
					if diff := cmp.Diff(o, watched); diff != "" {
						t.Fatalf("LIST and WATCH differ (-list +watch)\n%s", diff)
					}
				}
				return compared
			})
		})
	}
}

func removeSamples(t *testing.T) {
	ctx := context.Background()
	c := cluster.Client()
	must(t, cluster.DeletePod(ctx, "samples", "sample"))
	for _, err := range []error{
		c.CoreV1().Namespaces().Delete(ctx, "samples", now), c.CoreV1().Nodes().Delete(ctx, "sample", now),
	} {
		must(t, err)
	}
	if kubetest.Has(kubetest.ServiceCIDRs) {
		must(t, c.NetworkingV1().ServiceCIDRs().Delete(ctx, "sample", now))
	}
	eventually(t, "the samples are gone", func() bool {
		_, err := c.CoreV1().Namespaces().Get(ctx, "samples", metav1.GetOptions{})
		_, err2 := c.NetworkingV1().ServiceCIDRs().Get(ctx, "sample", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && apierrors.IsNotFound(err2)
	})
}

// An observer has the latest version of all objects of WATCH.
type observer struct {
	mu      sync.Mutex
	objects map[string]runtime.Object // by kind, namespace and name
}

// newObserver follows all kinds until the test ends. It returns when all are listed.
func newObserver(t *testing.T, api *kube.Cluster) *observer {
	o := &observer{objects: map[string]runtime.Object{}}
	var listed sync.WaitGroup
	var all []kube.Subscription
	for _, k := range kube.Kinds() {
		listed.Add(1)
		done := sync.OnceFunc(listed.Done)
		all = append(all, kube.Subscription{Kind: k, Send: func(e kube.Event) {
			if e.Replace {
				done()
				return
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			o.objects[key(k, e.Object)] = e.Object
		}})
	}
	go api.Follow(t.Context(), silent(), all...)
	listed.Wait()
	return o
}

// watched returns the object of WATCH with the identity and version of o, nil if there is none.
func (ob *observer) watched(k kube.Kind, o any) runtime.Object {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	w := ob.objects[key(k, o)]
	if w == nil || accessor(w).GetResourceVersion() != accessor(o).GetResourceVersion() {
		return nil
	}
	return w
}
