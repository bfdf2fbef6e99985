package ovnkube

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/vlog"
)

// levels are those of --loglevel as arguments of -v. Details do not go to the system log.
var levels = map[int][]string{1: {"emer"}, 2: {"err"}, 3: {"warn"}, 4: nil, 5: {"console:dbg", "file:dbg"}}

// OpenLog opens the log with the options --loglevel and --logfile; those of vlog win over them. Either file is rotated as o
// has it. A log file that cannot be opened is no error: problem describes it.
func OpenLog(o options.Options, v vlog.Options, console io.Writer) (log *vlog.Log, problem error, err error) {
	v.Rotation = vlog.Rotation(o.Rotation)
	v.Verbose = append(levels[o.LogLevel], v.Verbose...)
	if v.LogFile != "" || o.LogFile == "" {
		log, err = vlog.New(Program, v, console)
		return log, nil, err
	}
	plain := v
	if err := os.MkdirAll(filepath.Dir(o.LogFile), 0o755); err != nil {
		problem = fmt.Errorf("going on without the log file %s: %w", o.LogFile, err)
	} else {
		v.LogFile = o.LogFile
		if log, err = vlog.New(Program, v, console); err == nil {
			return log, nil, nil
		}
		problem = fmt.Errorf("going on without the log file %s: %w", o.LogFile, err)
	}
	log, err = vlog.New(Program, plain, console)
	return log, problem, err
}
