package kube

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// An unreachable API server is logged once, though each error names another port.
func TestLostConnectionsAreLoggedOnce(t *testing.T) {
	tries := 0
	i := NewInformers(&rest.Config{Host: "http://192.0.2.1", Dial: func(context.Context, string, string) (net.Conn, error) {
		tries++
		return nil, fmt.Errorf("read udp 192.0.2.2:%d->192.0.2.53:53: i/o timeout", 40000+tries)
	}})
	pods := KindOf(&corev1.Pod{})
	if err := i.add([]Kind{pods}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	ctx, cancel := context.WithCancel(t.Context())
	lost := 0
	i.Follow(ctx, logrus.NewEntry(log), Subscription{Kind: pods, Send: func(Event) {}, Lost: func(error) {
		if lost++; lost == 3 {
			cancel()
		}
	}})
	if n := strings.Count(out.String(), "lost the API server"); n != 1 || tries < 3 {
		t.Errorf("%d lines after %d tries\n%s", n, tries, &out)
	}
}
