package main

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

// A report has the results of a run.
type report struct {
	Began   time.Time
	Seconds float64
	Machine machine
	Results []result
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

// A result is one line of the table.
type result struct {
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

func newReport() *report {
	var name unix.Utsname
	_ = unix.Uname(&name) // a header without the kernel is no harm
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info)
	return &report{Began: time.Now(), Machine: machine{
		CPU: cpuModel(), CPUs: runtime.NumCPU(), MemoryMB: info.Totalram * uint64(info.Unit) >> 20,
		Kernel: unix.ByteSliceToString(name.Release[:]), Go: runtime.Version(),
		OVN: ovntest.Version("ovn-northd"), OVS: ovntest.Version("ovsdb-server"), Kubernetes: kubernetesVersion(),
		LoadBefore: load(), OnlyRatiosCount: true,
	}}
}

func (r *report) finish() {
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

// alone adds a result without a yardstick. aim is its upper bound; 0 is none.
func (r *report) alone(figure, unit string, aim float64, rounds ...float64) *result {
	return r.add(result{Figure: figure, Unit: unit, Ours: median(rounds), OursRounds: rounds, Aim: atMost(aim)})
}

// beside adds a result with the yardstick's, round by round. aim is the upper bound of the ratio; 0 is none.
func (r *report) beside(figure, unit string, aim float64, ours, yardstick []float64) *result {
	ratios := make([]float64, 0, len(ours))
	for i := range min(len(ours), len(yardstick)) {
		ratios = append(ratios, ours[i]/yardstick[i])
	}
	m, q := median(yardstick), median(ratios)
	s := result{Figure: figure, Unit: unit, Ours: median(ours), OursRounds: ours, Yardstick: &m, YardstickRounds: yardstick, Aim: atMost(aim)}
	if !math.IsNaN(q) && !math.IsInf(q, 0) {
		s.Ratio = &q
	}
	return r.add(s)
}

// note adds a remark to a result.
func (r *result) note(format string, args ...any) { r.Note = fmt.Sprintf(format, args...) }

func (r *report) add(s result) *result {
	r.Results = append(r.Results, s)
	return &r.Results[len(r.Results)-1]
}

// mustBeZero makes 0 the aim.
func (r *result) mustBeZero() { r.Aim = new(float64) }

func atMost(aim float64) *float64 {
	if aim == 0 {
		return nil
	}
	return &aim
}

func (r *report) printJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r *report) print(out io.Writer) error {
	m := r.Machine
	fmt.Fprintf(out, "%s, %d CPUs for everything, %d MB, Linux %s\n", m.CPU, m.CPUs, m.MemoryMB, m.Kernel)
	fmt.Fprintf(out, "OVN %s, Open vSwitch %s, Kubernetes %s, %s\n", m.OVN, m.OVS, m.Kubernetes, m.Go)
	fmt.Fprintf(out, "%s, %.0f s, load before %s, after %s\n", r.Began.Format(time.DateTime), r.Seconds, m.LoadBefore, m.LoadAfter)
	if dir := fastDir(); dir != "" {
		fmt.Fprintf(out, "The databases of burst, single and scale are in %s, and etcd does not wait for the disk anyway.\n", dir)
	}
	fmt.Fprintf(out, "Values are medians of rounds, [least..most]; ratios are of rounds side by side. If the machine had other work, only ratios count.\n\n")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIGURE\tOURS\t\tYARDSTICK\t\tRATIO\tAIM\t\tNOTE")
	for _, s := range r.Results {
		fmt.Fprintf(t, "%s\t%s %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Figure, number(&s.Ours), s.Unit, spread(s.OursRounds),
			number(s.Yardstick), spread(s.YardstickRounds), number(s.Ratio), s.aim(), s.verdict(), s.Note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	r.printVerdict(out)
	return nil
}

// printVerdict prints the number of aims met, and the missed ones.
func (r *report) printVerdict(out io.Writer) {
	met, missed := 0, []result{}
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
func (r *result) judged() string {
	if r.Ratio != nil {
		return number(r.Ratio) + " ×"
	}
	return strings.TrimSpace(number(&r.Ours) + " " + r.Unit)
}

// aim is the upper bound of a result.
func (r *result) aim() string {
	if r.Aim == nil {
		return ""
	}
	if r.Ratio != nil {
		return "≤ " + number(r.Aim) + " ×"
	}
	return "≤ " + number(r.Aim)
}

func (r *result) verdict() string {
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

// number formats a value with three digits.
func number(v *float64) string {
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
	return "[" + number(&least) + ".." + number(&most) + "]"
}

func median(values []float64) float64 { return percentile(values, 50) }

// percentile is the smallest value not exceeded by at least p percent of all.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}

// besides shows the yardstick's values without comparing them.
func (r *result) besides(rounds []float64) *result {
	m := median(rounds)
	r.Yardstick, r.YardstickRounds = &m, rounds
	return r
}
