package host

import "context"

// Freeze stops the processes of pidfiles, a pattern of sh(1), with SIGSTOP. It returns when all their threads are stopped:
// kill(2) returns earlier, and a busy machine lets them go on for some milliseconds.
func (h machine) Freeze(ctx context.Context, pidfiles string) error {
	_, err := h.Script(ctx, `set -e
		for f in $1; do
			p=$(cat "$f")
			kill -STOP "$p"
			while grep -q '^State:.[^Tt]' /proc/"$p"/task/*/status; do sleep 0.01; done
		done`, pidfiles)
	return err
}

// Thaw continues the processes of pidfiles.
func (h machine) Thaw(ctx context.Context, pidfiles string) error {
	_, err := h.Script(ctx, `set -e; for f in $1; do kill -CONT "$(cat "$f")"; done`, pidfiles)
	return err
}
