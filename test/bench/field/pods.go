package field

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The watcher's cluster.
const (
	Nodes       = 100
	PodsPerNode = 200 // fit into a subnet of 254 addresses, beside a few more
)

// NodeName is the name of a node.
func NodeName(i int) string { return fmt.Sprintf("worker-%03d.example.net", i) }

// Namespaces are the namespaces of pods.
func Namespaces() []string {
	return []string{"checkout", "payments-prod", "search", "monitoring", "data-pipeline", "web-frontend", "team-a-staging", "ci-runners"}
}

// letters are the letters of Kubernetes' random suffixes: they cannot make words.
const letters = "bcdfghjklmnpqrstvwxz2456789"

// suffix spells n as a random suffix of the given length.
func suffix(n, length int) string {
	var b strings.Builder
	for range length {
		b.WriteByte(letters[n%len(letters)])
		n /= len(letters)
	}
	return b.String()
}

// NewPod makes pod i of a round, like a ReplicaSet of a usual service: about 4 kB with the API server's additions.
// Names of different rounds differ.
func NewPod(round, i int) *corev1.Pod {
	apps := []string{"api-gateway", "cart", "catalog-indexer", "notification-dispatcher", "session-store", "worker", "ingest", "thumbnailer", "ledger", "web"}
	app := apps[i%len(apps)]
	hash := suffix(round*7919+i%len(apps)+1_000_000, 9)
	spaces := Namespaces()
	env := []corev1.EnvVar{
		{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
		{Name: "DATABASE_PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: app + "-database"}, Key: "password"}}},
	}
	for _, kv := range []string{
		"LOG_LEVEL=info", "LOG_FORMAT=json", "HTTP_PORT=8080", "DATABASE_HOST=postgres.data-pipeline.svc.cluster.local", "DATABASE_NAME=" + app,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://otel-collector.monitoring.svc.cluster.local:4317", "OTEL_RESOURCE_ATTRIBUTES=service.name=" + app + ",deployment.environment=production",
		"FEATURE_FLAGS=new-checkout,fast-search,dark-mode", "GOMEMLIMIT=460MiB", "CACHE_URL=redis://session-store.checkout.svc.cluster.local:6379/0",
	} {
		k, v, _ := strings.Cut(kv, "=")
		env = append(env, corev1.EnvVar{Name: k, Value: v})
	}
	resources := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("512Mi")},
	}
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http")}}, PeriodSeconds: 10}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: spaces[i%len(spaces)], Name: fmt.Sprintf("%s-%s-%s", app, hash, suffix(i*104729+round, 5)),
			Labels: map[string]string{
				"app.kubernetes.io/name": app, "app.kubernetes.io/instance": app + "-production", "app.kubernetes.io/version": "4.17.2",
				"app.kubernetes.io/managed-by": "Helm", "pod-template-hash": hash,
			},
			Annotations: map[string]string{
				"checksum/config":      "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
				"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "kubectl.kubernetes.io/restartedAt": "2026-11-21T07:05:38Z",
			},
		},
		Spec: corev1.PodSpec{
			NodeName:                      NodeName(i % Nodes),
			TerminationGracePeriodSeconds: new(int64),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{
				{
					Name: app, Image: "registry.example.net/" + spaces[i%len(spaces)] + "/" + app + "@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
					Args: []string{"serve", "--config=/etc/" + app + "/config.yaml", "--metrics-address=:9090"},
					Env:  env, Resources: resources, ReadinessProbe: probe("/readyz"), LivenessProbe: probe("/healthz"),
					Ports:        []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "metrics", ContainerPort: 9090}},
					VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/" + app}, {Name: "tmp", MountPath: "/tmp"}},
				},
				{
					Name: "proxy", Image: "registry.example.net/mesh/proxy:1.27.3", Args: []string{"--drain-time=5s"},
					Env: env[:3], Resources: resources, ReadinessProbe: probe("/ready"),
				},
			},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: app + "-config"}}}},
				{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
	}
}
