// Package defect turns panics into errors: one request does not end a daemon with all its roles.
package defect

import (
	"fmt"
	"runtime/debug"
)

// An Error is a panic: a defect of this program.
type Error struct {
	Value any    // of the panic
	Stack []byte // of its goroutine
}

// Error has no stack: it may be shown to users.
func (e *Error) Error() string { return fmt.Sprintf("a defect of this program: %v", e.Value) }

// Catch calls f and returns its error, or an *Error if f panics.
func Catch(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Error{p, debug.Stack()}
		}
	}()
	return f()
}
