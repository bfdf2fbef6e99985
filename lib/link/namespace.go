package link

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"ovn-k8s/lib/defect"
)

// errNoDevice is the kernel's error for a deleted interface.
const errNoDevice = unix.ENODEV

// A Namespace is an open network namespace. It must be closed.
type Namespace struct {
	path   string
	handle netns.NsHandle
}

// OpenNamespace opens the network namespace at path, as in "/run/netns/blue" or "/proc/1234/ns/net". The error
// satisfies errors.Is(err, fs.ErrNotExist) if path does not exist.
func OpenNamespace(path string) (*Namespace, error) {
	h, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("opening network namespace %q: %w", path, err)
	}
	// ioctl_nsfs(2): other files answer ENOTTY, other namespaces their own type
	if kind, err := unix.IoctlRetInt(int(h), unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		_ = h.Close()
		return nil, fmt.Errorf("%q is not a network namespace", path)
	}
	return &Namespace{path, h}, nil
}

// Close closes the namespace. The namespace exists as long as it is in use.
func (n *Namespace) Close() error { return n.handle.Close() }

// IsCurrent reports whether n is the namespace of the calling thread.
func (n *Namespace) IsCurrent() (bool, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		return false, fmt.Errorf("opening the current network namespace: %w", err)
	}
	defer func() { _ = here.Close() }()
	return here.Equal(n.handle), nil
}

// Enter moves the calling thread into the namespace for good. The goroutine must have locked its thread and must not
// unlock it: the runtime then ends the thread with the goroutine.
func (n *Namespace) Enter() error {
	if err := netns.Set(n.handle); err != nil {
		return fmt.Errorf("entering network namespace %q: %w", n.path, err)
	}
	return nil
}

// Do calls f inside the namespace and returns its error, a *defect.Error if f panics: the caller cannot recover from a panic of
// another goroutine. Goroutines started by f do not run inside.
func (n *Namespace) Do(f func() error) error {
	result := make(chan error)
	// In a goroutine of its own: if returning to the old namespace fails, the goroutine ends with its thread locked,
	// and the runtime ends the thread, too.
	go func() { result <- n.do(f) }()
	return <-result
}

func (n *Namespace) do(f func() error) error {
	runtime.LockOSThread()
	back, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("opening the current network namespace: %w", err)
	}
	defer func() { _ = back.Close() }()
	if err := netns.Set(n.handle); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("entering network namespace %q: %w", n.path, err)
	}
	err = defect.Catch(f)
	if netns.Set(back) == nil {
		runtime.UnlockOSThread()
	}
	return err
}
