package defect

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestCatch(t *testing.T) {
	if err := Catch(func() error { return io.EOF }); err != io.EOF {
		t.Errorf("an error became %v", err)
	}
	if err := Catch(func() error { return nil }); err != nil {
		t.Errorf("success became %v", err)
	}
	err := Catch(func() error {
		var list []int
		_ = list[len(list)]
		return nil
	})
	var d *Error
	if !errors.As(err, &d) || !strings.Contains(err.Error(), "a defect of this program: runtime error: index out of range") {
		t.Fatalf("a panic became %v", err)
	}
	if !strings.Contains(string(d.Stack), "defect_test.go") {
		t.Errorf("the stack is not that of the panic: %s", d.Stack)
	}
}
