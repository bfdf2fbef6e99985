package kube

import (
	"fmt"
	"iter"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A packed is the trimmed objects of a page of LIST, in protobuf. A list waits until the receiver takes it, and of a
// hundred thousand pods it would take a quarter of a gigabyte in Go: a corev1.Pod alone has 1 144 bytes.
type packed struct {
	object runtime.Object // an empty one
	data   []byte
	ends   []int // of each object in data
}

// A message is an object with a form in protobuf: each object of Kubernetes itself has one.
type message interface {
	runtime.Object
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
	Unmarshal([]byte) error
}

// pack trims the objects of a page, and packs them if they have a form in protobuf.
func (k Kind) pack(page runtime.Object) (runtime.Object, error) {
	if _, ok := k.Object.(message); !ok {
		return page, meta.EachListItem(page, k.Trim)
	}
	p := &packed{object: k.Object}
	if err := meta.EachListItem(page, func(o runtime.Object) error { return p.add(k, o.(message)) }); err != nil {
		return nil, err
	}
	m, err := meta.ListAccessor(page)
	if err != nil {
		return nil, fmt.Errorf("packing %s: %w", k.Name, err)
	}
	p.clip()
	return p.page(metav1.ListMeta{ResourceVersion: m.GetResourceVersion(), Continue: m.GetContinue(), RemainingItemCount: m.GetRemainingItemCount()}), nil
}

// add trims and packs an object.
func (p *packed) add(k Kind, o message) error {
	if err := k.Trim(o); err != nil {
		return err
	}
	n := o.Size()
	p.data = slices.Grow(p.data, n)
	if _, err := o.MarshalToSizedBuffer(p.data[len(p.data) : len(p.data)+n]); err != nil {
		return fmt.Errorf("packing %s: %w", k.Name, err)
	}
	p.data = p.data[:len(p.data)+n]
	p.ends = append(p.ends, len(p.data))
	return nil
}

// clip releases the room for more objects.
func (p *packed) clip() { p.data, p.ends = slices.Clone(p.data), slices.Clone(p.ends) }

// page is a page of LIST with the packed objects only.
func (p *packed) page(m metav1.ListMeta) runtime.Object {
	return &metainternal.List{ListMeta: m, Items: []runtime.Object{p}}
}

// empty makes an object.
func (p *packed) empty() message {
	return reflect.New(reflect.TypeOf(p.object).Elem()).Interface().(message)
}

// all are the objects. Each is made when it is asked for.
func (p *packed) all(yield func(any) bool) {
	from := 0
	for _, to := range p.ends {
		o := p.empty()
		if err := o.Unmarshal(p.data[from:to]); err != nil {
			panic(fmt.Sprintf("kube: unpacking a %T that was packed here: %v", o, err))
		}
		if !yield(o) {
			return
		}
		from = to
	}
}

// GetObjectKind implements runtime.Object, for lists.
func (p *packed) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Nothing changes a packed.
func (p *packed) DeepCopyObject() runtime.Object { return p }

// unpacked are the objects of a list, some of them packed.
func unpacked[O any](list []O) iter.Seq[any] {
	return func(yield func(any) bool) {
		for _, o := range list {
			if p, ok := any(o).(*packed); ok {
				for o := range p.all {
					if !yield(o) {
						return
					}
				}
			} else if !yield(o) {
				return
			}
		}
	}
}
