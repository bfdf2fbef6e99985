// Package report collects the figures of a run, and prints them.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/ovntest"
)

// A Report has the results of a run.
type Report struct {
	Began   time.Time
	Seconds float64
	Machine machine
	Results []Result
	// Databases is the directory of databases in memory, or empty.
	Databases string `json:"-"`
}

// A machine describes the conditions of the numbers.
type machine struct {
	CPU             string
	CPUs            int
	MemoryMB        uint64
	Kernel          string
	Go              string
	OVN, OVS        string
	Kubernetes      string
	LoadBefore      string // 1, 5 and 15 minutes
	LoadAfter       string
	OnlyRatiosCount bool // true: others may have been working on the machine
}

// A Result is one line of the table.
type Result struct {
	Figure string
	Unit   string
	// Ours and Yardstick are the medians of the rounds.
	Ours      float64
	Yardstick *float64 `json:",omitempty"`
	// Ratio is the median of the rounds' ratios of ours to the yardstick's.
	Ratio *float64 `json:",omitempty"`
	// Aim is the upper bound for Ratio, or for Ours without a ratio.
	Aim             *float64 `json:",omitempty"`
	OursRounds      []float64
	YardstickRounds []float64 `json:",omitempty"`
	Note            string    `json:",omitempty"`
}

// New begins a report.
func New() *Report {
	var name unix.Utsname
	_ = unix.Uname(&name) // a header without the kernel is no harm
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info)
	return &Report{Began: time.Now(), Machine: machine{
		CPU: cpuModel(), CPUs: runtime.NumCPU(), MemoryMB: info.Totalram * uint64(info.Unit) >> 20,
		Kernel: unix.ByteSliceToString(name.Release[:]), Go: runtime.Version(),
		OVN: ovntest.Version("ovn-northd"), OVS: ovntest.Version("ovsdb-server"), Kubernetes: kubernetesVersion(),
		LoadBefore: load(), OnlyRatiosCount: true,
	}}
}

// Finish records the end of the run.
func (r *Report) Finish() {
	r.Machine.LoadAfter = load()
	r.Seconds = time.Since(r.Began).Seconds()
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for l := range strings.Lines(string(text)) {
		if k, v, _ := strings.Cut(l, ":"); strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return "unknown CPU"
}

// kubernetesVersion is the version of the control plane's module: its own build does not know it.
func kubernetesVersion() string {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "unknown"
	}
	args := append([]string{"list"}, kubetest.Flags(kubetest.Release())...)
	cmd := exec.Command("go", append(args, "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")...)
	cmd.Dir = filepath.Join(filepath.Dir(string(mod)), "test", "controlplane")
	out, _ := cmd.Output()
	return cmp.Or(strings.TrimSpace(string(out)), "unknown")
}

func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	words := strings.Fields(string(text))
	return strings.Join(words[:min(3, len(words))], " ")
}

// Alone adds a result without a yardstick. aim is its upper bound; 0 is none.
func (r *Report) Alone(figure, unit string, aim float64, rounds ...float64) *Result {
	return r.add(Result{Figure: figure, Unit: unit, Ours: Median(rounds), OursRounds: rounds, Aim: atMost(aim)})
}

// Beside adds a result with the yardstick's, round by round. aim is the upper bound of the ratio; 0 is none.
func (r *Report) Beside(figure, unit string, aim float64, ours, yardstick []float64) *Result {
	ratios := make([]float64, 0, len(ours))
	for i := range min(len(ours), len(yardstick)) {
		ratios = append(ratios, ours[i]/yardstick[i])
	}
	m, q := Median(yardstick), Median(ratios)
	s := Result{Figure: figure, Unit: unit, Ours: Median(ours), OursRounds: ours, Yardstick: &m, YardstickRounds: yardstick, Aim: atMost(aim)}
	if !math.IsNaN(q) && !math.IsInf(q, 0) {
		s.Ratio = &q
	}
	return r.add(s)
}

// Explain adds a remark to a result.
func (r *Result) Explain(format string, args ...any) { r.Note = fmt.Sprintf(format, args...) }

func (r *Report) add(s Result) *Result {
	r.Results = append(r.Results, s)
	return &r.Results[len(r.Results)-1]
}

// MustBeZero makes 0 the aim.
func (r *Result) MustBeZero() { r.Aim = new(float64) }

func atMost(aim float64) *float64 {
	if aim == 0 {
		return nil
	}
	return &aim
}

// PrintJSON prints the report as JSON.
func (r *Report) PrintJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Print prints the report as a table.
func (r *Report) Print(out io.Writer) error {
	m := r.Machine
	fmt.Fprintf(out, "%s, %d CPUs for everything, %d MB, Linux %s\n", m.CPU, m.CPUs, m.MemoryMB, m.Kernel)
	fmt.Fprintf(out, "OVN %s, Open vSwitch %s, Kubernetes %s, %s\n", m.OVN, m.OVS, m.Kubernetes, m.Go)
	fmt.Fprintf(out, "%s, %.0f s, load before %s, after %s\n", r.Began.Format(time.DateTime), r.Seconds, m.LoadBefore, m.LoadAfter)
	if dir := r.Databases; dir != "" {
		fmt.Fprintf(out, "The databases of burst, single and scale are in %s, and etcd does not wait for the disk anyway.\n", dir)
	}
	fmt.Fprintf(out, "Values are medians of rounds, [least..most]; ratios are of rounds side by side. If the machine had other work, only ratios count.\n\n")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIGURE\tOURS\t\tYARDSTICK\t\tRATIO\tAIM\t\tNOTE")
	for _, s := range r.Results {
		fmt.Fprintf(t, "%s\t%s %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Figure, Number(&s.Ours), s.Unit, spread(s.OursRounds),
			Number(s.Yardstick), spread(s.YardstickRounds), Number(s.Ratio), s.aim(), s.verdict(), s.Note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	r.printVerdict(out)
	return nil
}

// printVerdict prints the number of aims met, and the missed ones.
func (r *Report) printVerdict(out io.Writer) {
	met, missed := 0, []Result{}
	for _, s := range r.Results {
		switch s.verdict() {
		case "met":
			met++
		case "missed":
			missed = append(missed, s)
		}
	}
	fmt.Fprintf(out, "\n%d of %d aims are met.\n", met, met+len(missed))
	for _, s := range missed {
		fmt.Fprintf(out, "missed: %s: %s (aim %s)\n", s.Figure, s.judged(), s.aim())
	}
}

// judged is the value compared with the aim.
func (r *Result) judged() string {
	if r.Ratio != nil {
		return Number(r.Ratio) + " ×"
	}
	return strings.TrimSpace(Number(&r.Ours) + " " + r.Unit)
}

// aim is the upper bound of a result.
func (r *Result) aim() string {
	if r.Aim == nil {
		return ""
	}
	if r.Ratio != nil {
		return "≤ " + Number(r.Aim) + " ×"
	}
	return "≤ " + Number(r.Aim)
}

func (r *Result) verdict() string {
	value := r.Ours
	if r.Ratio != nil {
		value = *r.Ratio
	}
	switch {
	case r.Aim == nil:
		return ""
	case value <= *r.Aim: // false for NaN
		return "met"
	}
	return "missed"
}

// Number formats a value with three digits.
func Number(v *float64) string {
	switch {
	case v == nil:
		return ""
	case math.IsNaN(*v):
		return "-"
	case *v == 0:
		return "0"
	case math.Abs(*v) >= 100:
		return fmt.Sprintf("%.0f", *v)
	}
	return fmt.Sprintf("%.*f", max(0, 2-int(math.Floor(math.Log10(math.Abs(*v))))), *v)
}

func spread(rounds []float64) string {
	if len(rounds) < 2 {
		return ""
	}
	least, most := slices.Min(rounds), slices.Max(rounds)
	return "[" + Number(&least) + ".." + Number(&most) + "]"
}

// Median is the middle value.
func Median(values []float64) float64 { return Percentile(values, 50) }

// Percentile is the smallest value not exceeded by at least p percent of all.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}

// Besides shows the yardstick's values without comparing them.
func (r *Result) Besides(rounds []float64) *Result {
	m := Median(rounds)
	r.Yardstick, r.YardstickRounds = &m, rounds
	return r
}
