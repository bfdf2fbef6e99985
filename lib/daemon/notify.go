package daemon

import (
	"fmt"
	"io"
	"strings"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// notify sends a state to systemd if it started this process with Type=notify (sd_notify(3)). Otherwise, or if
// systemd does not listen, nothing happens.
func notify(state string) { _, _ = sd.SdNotify(false, state) }

// Ready tells systemd about the end of the startup. Run calls it for a Service.
func Ready() { notify(sd.SdNotifyReady) }

// Status returns a function for one-line status texts until the Service is ready. They are shown by systemctl status
// and, with --detach, printed to stderr of the launcher.
func (o Options) Status(program string, stderr io.Writer) func(text string) {
	return func(text string) {
		text, _, _ = strings.Cut(text, "\n") // a newline would start another assignment
		notify("STATUS=" + text)
		if o.Detach {
			fmt.Fprintf(stderr, "%s: %s\n", program, text)
		}
	}
}
