package daemon

import (
	"fmt"
	"io"
	"strings"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// notify sends a state to the systemd that has started this process with
// Type=notify (sd_notify(3)). Without one, or if it does not listen, nothing happens.
func notify(state string) { _, _ = sd.SdNotify(false, state) }

// Ready tells systemd that this process has started. Run does it for a Service.
func Ready() { notify(sd.SdNotifyReady) }

// Status returns what tells systemd in one line what the program does, and, with
// --detach, whoever waits for the launcher, until the Service is ready. systemctl
// status shows it.
func (o Options) Status(program string, stderr io.Writer) func(text string) {
	return func(text string) {
		text, _, _ = strings.Cut(text, "\n") // a newline would begin another assignment
		notify("STATUS=" + text)
		if o.Detach {
			fmt.Fprintf(stderr, "%s: %s\n", program, text)
		}
	}
}
