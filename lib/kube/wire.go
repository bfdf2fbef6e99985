package kube

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// fields are the fields in use of a message in protobuf, by number, with those of the messages inside; nil: all.
// The numbers are those of generated.proto beside the Go types, and never change. Decoding all of a pod would take ten
// times as long as decoding its fields in use.
type fields map[protowire.Number]fields

// metaFields are the fields for KeepMeta and labels: name, namespace, uid, resourceVersion, creationTimestamp, labels and
// annotations.
func metaFields() fields { return fields{1: nil, 3: nil, 5: nil, 6: nil, 8: nil, 11: nil, 12: nil} }

// podFields are those for keepPod: of containers ports and restartPolicy; nodeName, hostNetwork; phase, podIPs.
func podFields() fields {
	containers := fields{6: nil, 24: nil}
	return fields{1: metaFields(), 2: {2: containers, 10: nil, 11: nil, 20: containers}, 3: {1: nil, 12: nil}}
}

// nodeFields are those for keepNode: deletionTimestamp, of taints the key, of the status the addresses.
func nodeFields() fields {
	meta := metaFields()
	meta[9] = nil
	return fields{1: meta, 2: {5: {1: nil}}, 3: {5: nil}}
}

// otherFields are all fields of other kinds, but for the metadata: managedFields may be most of an object.
func otherFields() fields { return fields{1: metaFields(), 2: nil, 3: nil, 4: nil} }

// pick appends those fields of a message to out.
func (f fields) pick(out, message []byte) ([]byte, error) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeField(message)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		inside, picked := f[number]
		switch {
		case !picked:
		case inside == nil || kind != protowire.BytesType:
			out = append(out, message[:n]...)
		default:
			_, _, tag := protowire.ConsumeTag(message)
			value, _ := protowire.ConsumeBytes(message[tag:])
			part, err := inside.pick(nil, value)
			if err != nil {
				return nil, err
			}
			out = protowire.AppendBytes(protowire.AppendTag(out, number, kind), part)
		}
		message = message[n:]
	}
	return out, nil
}

// magic begins an object of Kubernetes in protobuf: a runtime.Unknown follows, with the object in it.
const magic = "k8s\x00"

// Numbers of fields of a runtime.Unknown, and of every list.
const (
	unknownRaw protowire.Number = 2
	listMeta   protowire.Number = 1
	listItems  protowire.Number = 2
)

// packBody is pack for a page as the body of the API server's answer, in protobuf. The objects are there after fill. It may
// run beside the request for the next page.
func (k Kind) packBody(body []byte) (page runtime.Object, fill func() error, err error) {
	wrong := func(err error) error { return fmt.Errorf("reading %s in protobuf: %w", k.Name, err) }
	if len(body) < len(magic) || string(body[:len(magic)]) != magic {
		return nil, nil, wrong(errors.New("it does not begin as Kubernetes says"))
	}
	meta, items, err := split(body[len(magic):])
	if err != nil {
		return nil, nil, wrong(err)
	}
	p := &packed{object: k.Object}
	return p.page(meta), func() error {
		if err := p.addAll(k, items); err != nil {
			return wrong(err)
		}
		return nil
	}, nil
}

// split returns the metadata and the items of a list in protobuf, inside a runtime.Unknown. It copies neither: a list of many pods
// has a hundred megabytes.
func split(unknown []byte) (meta metav1.ListMeta, items [][]byte, err error) {
	var list []byte
	err = each(unknown, func(number protowire.Number, value []byte) error {
		if number == unknownRaw {
			list = value
		}
		return nil
	})
	if err != nil {
		return meta, nil, err
	}
	err = each(list, func(number protowire.Number, value []byte) error {
		switch number {
		case listMeta:
			return meta.Unmarshal(value)
		case listItems:
			items = append(items, value)
		}
		return nil
	})
	return meta, items, err
}

// each calls do for each field of a message with fields of bytes only.
func each(message []byte, do func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		number, _, tag := protowire.ConsumeTag(message)
		value, n := protowire.ConsumeBytes(message[max(0, tag):])
		if tag < 0 || n < 0 {
			return errors.New("a field of the list ends early")
		}
		if err := do(number, value); err != nil {
			return err
		}
		message = message[tag+n:]
	}
	return nil
}

// addAll trims and packs objects in protobuf. Only their fields in use are decoded.
func (p *packed) addAll(k Kind, items [][]byte) error {
	var picked []byte
	for _, item := range items {
		var err error
		if picked, err = k.wire.pick(picked[:0], item); err != nil {
			return err
		}
		o := p.empty()
		if err := o.Unmarshal(picked); err != nil {
			return err
		}
		if err := p.add(k, o); err != nil {
			return err
		}
	}
	p.clip()
	return nil
}
