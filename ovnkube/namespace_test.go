package main

import (
	"fmt"
	"strings"
	"testing"
)

// onlyLeases is an account for what a master needs before it leads, in all namespaces.
const onlyLeases = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: only-leases, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: only-leases}
rules: [{apiGroups: [coordination.k8s.io, ""], resources: [leases, configmaps], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: only-leases}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: only-leases}
subjects: [{kind: ServiceAccount, name: only-leases, namespace: default}]`

// A master makes the missing namespace of its Lease: command lines of former releases come to clusters without one. Without the
// right to do so, it says which one is missing.
func TestMissingNamespace(t *testing.T) {
	kubernetes := startCluster(t)
	h := newHost(t)
	central := h.startCentral()
	if err := kubernetes.Apply(t.Context(), []byte(onlyLeases)); err != nil {
		t.Fatal(err)
	}
	token, err := kubernetes.ServiceAccountToken(t.Context(), "default", "only-leases")
	if err != nil {
		t.Fatal(err)
	}
	start := func(account string) *process {
		return h.start(strings.Fields(fmt.Sprintf("-init-master=n1 -ovn-config-namespace=fresh -nb-address=%s -sb-address=%s %s", central.NBTCP, central.SBTCP, account)))
	}
	p := start(fmt.Sprintf("-k8s-apiserver=%s -k8s-cacert=%s -k8s-api-token-file=%s", kubernetes.URL, kubernetes.CAFile, h.write("token", token)))
	p.says("namespace fresh of the Lease: not found; create it")
	p.stop()
	start("-k8s-kubeconfig=" + kubernetes.Kubeconfig).says("leads with term 1")
}
