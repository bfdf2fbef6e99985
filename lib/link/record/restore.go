package record

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// Groups splits records, which keep their order, so that those of one Group are
// together.
func Groups(records []Record) [][]Record {
	var all [][]Record
	for len(records) > 0 {
		n := 1
		for records[0].Group != "" && n < len(records) && records[n].Group == records[0].Group {
			n++
		}
		all, records = append(all, records[:n]), records[n:]
	}
	return all
}

// Lasting returns those records that go with the addresses of the interface they
// are of, and that nothing but Restore brings back: addresses, routes and
// neighbours, without those that the kernel makes by itself.
func Lasting(i Interface) ([]Record, error) {
	all, err := Of(i)
	all = slices.DeleteFunc(all, func(r Record) bool {
		return r.Kind == Rule || r.Automatic() || !r.Mentions(i.Name)
	})
	for n := range all {
		all[n].forgetTimes()
	}
	return all, err
}

// forgetTimes leaves out when the kernel was told or asked last, so that the same
// state is the same text.
func (r *Record) forgetTimes() {
	switch r.Kind {
	case Address:
		if info := r.attr(unix.IFA_CACHEINFO); len(info) > 8 { // behind the lifetimes
			clear(info[8:])
		}
	case Neighbour:
		r.set(unix.NDA_CACHEINFO, nil)
	}
}

// Lost lists which of some records an interface does not have. An address that
// turned out to be another host's is lost, too.
func Lost(records []Record, i Interface) ([]Record, error) {
	is, err := Of(i)
	if err != nil {
		return nil, err
	}
	has, duplicates := map[string]bool{}, map[string]bool{}
	for _, r := range is {
		has[r.Key()], duplicates[r.Key()] = true, r.duplicate()
	}
	return slices.DeleteFunc(slices.Clone(records), func(r Record) bool {
		return has[r.Key()] && !(duplicates[r.Key()] && r.Usable())
	}), nil
}

// Restore gives an interface those of some records that it has lost. Lifetimes
// begin again. One that the kernel does not take does not keep it from the others.
func Restore(records []Record, to Interface) error {
	lost, err := Lost(records, to)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range lost {
		errs = append(errs, Add(r, to, 0))
	}
	return errors.Join(errs...)
}
