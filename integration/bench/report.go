package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// report is the JSON output of the program.
type report struct {
	Machine machine      `json:"machine"`
	Runs    int          `json:"runs"`
	Scale   float64      `json:"scale"`
	Began   time.Time    `json:"began"`
	Rows    []*rowResult `json:"rows"`
}

// rowResult is one row of the table.
type rowResult struct {
	Name     string     `json:"name"`
	What     string     `json:"what"`
	Target   string     `json:"target"`
	Axis     string     `json:"axis,omitempty"` // what grows; empty if nothing does
	Settings []string   `json:"settings"`
	Figures  []*figure  `json:"figures"`
	Notes    []string   `json:"notes"`
	Problems []string   `json:"problems"`
	Took     float64    `json:"took"`     // seconds
	Outcomes []measured `json:"outcomes"` // every run of every side as it was
}

// measured is one run of one side.
type measured struct {
	Side side `json:"side"`
	Run  int  `json:"run"` // 0 for a warm-up
	*outcome
}

// figure returns the figure of that name, made on first use.
func (r *rowResult) figure(name, unit string, t *target) *figure {
	for _, f := range r.Figures {
		if f.Name == name {
			return f
		}
	}
	f := &figure{Name: name, Unit: unit, Target: t}
	r.Figures = append(r.Figures, f)
	return f
}

// setting records the settings of a side, once.
func (r *rowResult) setting(s side, text string) {
	text = string(s) + ": " + text
	if !slices.Contains(r.Settings, text) {
		r.Settings = append(r.Settings, text)
	}
}

func (r *rowResult) finish() {
	for _, f := range r.Figures {
		f.finish()
	}
}

func (r *report) head(w io.Writer) {
	fmt.Fprintf(w, "redeliver bench, %s: %d runs a side after one that is discarded, scale %g\n", r.Began.Format(time.RFC3339), r.Runs, r.Scale)
	for _, l := range r.Machine.lines() {
		fmt.Fprintf(w, "  %s\n", l)
	}
	if r.Scale != 1 || r.Runs < 5 {
		fmt.Fprintf(w, "  A TRIAL: figures for publication need --scale 1 and at least 5 runs\n")
	}
}

func (r *rowResult) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s   [%.0f s]\n", r.Name, r.What, r.Took)
	wide := 0
	for _, f := range r.Figures {
		wide = max(wide, len(f.Name))
	}
	for _, f := range r.Figures {
		line := fmt.Sprintf("  %-*s  %-36s", wide, f.Name, f.text())
		if f.Target != nil {
			line += fmt.Sprintf(" %-22s %s", f.Target.text(f.Unit), f.Verdict)
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	for _, s := range r.Settings {
		fmt.Fprintf(w, "  settings  %s\n", s)
	}
	for _, s := range r.Notes {
		fmt.Fprintf(w, "  note      %s\n", s)
	}
	for _, s := range r.Problems {
		fmt.Fprintf(w, "  PROBLEM   %s\n", strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n            "))
	}
}

// save writes the files that were asked for.
func (r *report) save(o options) error {
	if o.json != "" {
		b, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	if o.markdown != "" {
		if err := os.WriteFile(o.markdown, []byte(r.table()), 0o644); err != nil {
			return err
		}
	}
	if o.svg != "" {
		return r.saveCharts(o.svg)
	}
	return nil
}

// table is the report as docs/evidence/benchmarks.md shows it.
func (r *report) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured %s, %d runs a side, scale %g.\n\n", r.Began.Format("2006-01-02"), r.Runs, r.Scale)
	for _, l := range r.Machine.lines() {
		fmt.Fprintf(&b, "- %s\n", l)
	}
	compared := slices.DeleteFunc(slices.Clone(r.Rows), func(row *rowResult) bool { return row.Axis != "" })
	if len(compared) > 0 {
		b.WriteString("\n| row | figure | median (range) | target | |\n| --- | --- | --- | --- | --- |\n")
	}
	for _, row := range compared {
		name := "`" + row.Name + "`"
		for _, f := range row.Figures {
			bound := ""
			if f.Target != nil {
				bound = f.Target.text(f.Unit)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, cell(f.Name), f.text(), bound, f.Verdict)
			name = ""
		}
		for _, p := range row.Problems {
			first, _, _ := strings.Cut(strings.TrimSpace(p), "\n")
			fmt.Fprintf(&b, "| %s | problem | %s | | |\n", name, cell(first))
		}
	}
	for _, row := range r.Rows {
		if row.Axis != "" {
			b.WriteString(row.section())
		}
	}
	return b.String()
}

// machine describes the machine of the measurement.
type machine struct {
	CPU    string   `json:"cpu"`
	Cores  int      `json:"cores"`
	Memory string   `json:"memory"`
	OS     string   `json:"os"`
	Go     string   `json:"go"`
	Broker string   `json:"broker"`
	Peers  []string `json:"peers"`
}

func (m machine) lines() []string {
	return []string{
		fmt.Sprintf("%s, %d cores for broker, clients and all, %s, %s", m.CPU, m.Cores, m.Memory, m.OS),
		fmt.Sprintf("%s; broker %s, one node each", m.Go, m.Broker),
		strings.Join(m.Peers, ", "),
	}
}

func describeMachine(ctx context.Context, opened map[system]broker) machine {
	m := machine{
		CPU: procLine("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(),
		Memory: procLine("/proc/meminfo", "MemTotal"), Go: runtime.Version(),
	}
	if b, err := os.ReadFile("/proc/version"); err == nil {
		m.OS = strings.Join(strings.Fields(string(b))[:min(3, len(strings.Fields(string(b))))], " ")
	}
	var versions []string
	for _, s := range slices.Sorted(maps.Keys(opened)) {
		versions = append(versions, opened[s].version(ctx))
	}
	m.Broker = cmp.Or(strings.Join(versions, ", "), "none")
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			switch d.Path {
			case "github.com/IBM/sarama", "github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill-kafka/v3", "github.com/twmb/franz-go",
				"github.com/ThreeDotsLabs/watermill-amqp/v3", "github.com/rabbitmq/amqp091-go", "github.com/txix-open/grmq":
				m.Peers = append(m.Peers, d.Path[strings.Index(d.Path, "/")+1:]+" "+d.Version)
			}
		}
	}
	return m
}

// procLine is the value of a "name: value" line.
func procLine(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return name + " unknown"
	}
	for l := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(l, ":")
		if ok && strings.TrimSpace(k) == name {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	return name + " unknown"
}
