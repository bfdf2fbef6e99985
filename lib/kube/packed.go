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
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// pack trims the objects of a page, and packs them if they have a form in protobuf.
func (k Kind) pack(page runtime.Object) (runtime.Object, error) {
	if _, ok := k.Object.(message); !ok {
		return page, meta.EachListItem(page, k.Trim)
	}
	p := &packed{object: k.Object}
	err := meta.EachListItem(page, func(o runtime.Object) error {
		if err := k.Trim(o); err != nil {
			return err
		}
		text, err := o.(message).Marshal()
		if err != nil {
			return fmt.Errorf("packing %s: %w", k.Name, err)
		}
		p.data = append(p.data, text...)
		p.ends = append(p.ends, len(p.data))
		return nil
	})
	if err != nil {
		return nil, err
	}
	m, err := meta.ListAccessor(page)
	if err != nil {
		return nil, fmt.Errorf("packing %s: %w", k.Name, err)
	}
	p.data, p.ends = slices.Clone(p.data), slices.Clone(p.ends)
	return &metainternal.List{
		ListMeta: metav1.ListMeta{ResourceVersion: m.GetResourceVersion(), Continue: m.GetContinue(), RemainingItemCount: m.GetRemainingItemCount()},
		Items:    []runtime.Object{p},
	}, nil
}

// all are the objects. Each is made when it is asked for.
func (p *packed) all(yield func(any) bool) {
	from := 0
	for _, to := range p.ends {
		o := reflect.New(reflect.TypeOf(p.object).Elem()).Interface().(message)
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
