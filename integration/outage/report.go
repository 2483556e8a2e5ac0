package main

import (
	"bytes"
	_ "embed" // for the page
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/template"
	"time"
)

// page has the data of docs/evidence/outage-run.md.
type page struct {
	Scale     float64
	Began     time.Time
	Machine   string
	Libraries string
	Services  []service
	Results   []*result
}

//go:embed page.md.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"count": count, "seconds": seconds, "share": share,
	"slow": func() time.Duration { return slow }, "quick": func() time.Duration { return quick }, "failing": func() time.Duration { return failing },
}).Parse(pageText))

func (p *page) write(to io.Writer) error { return pageTemplate.Execute(to, p) }

// Title returns the broker's display name.
func (r *result) Title() string { return r.Version }

// Chart returns the name of the chart's file.
func (r *result) Chart() string { return "outage-run-" + r.Broker + ".svg" }

// The template calls these methods.
func (t timeline) Rate() int          { return t.rate }
func (t timeline) Load() string       { return seconds(t.load) }
func (t timeline) Down() string       { return seconds(t.down) }
func (t timeline) Up() string         { return seconds(t.up) }
func (t timeline) Edge() string       { return seconds(t.edge) }
func (t timeline) Messages() string   { return count(t.messages) }
func (t timeline) OutageLast() string { return seconds(t.up - t.down) }

// count writes a number with commas.
func count(n any) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

func seconds(d time.Duration) string {
	switch {
	case d < 100*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
}

// share formats a number and its share of all.
func share(n, of int) string {
	if n == 0 || of == 0 {
		return "0"
	}
	return fmt.Sprintf("%s (%.1f %%)", count(n), 100*float64(n)/float64(of))
}

// machine describes this machine.
func machine() string {
	return fmt.Sprintf("%d cores of %s, %s", runtime.NumCPU(), procLine("/proc/cpuinfo", "model name"), runtime.Version())
}

// procLine returns the value of a "name: value" line of a file.
func procLine(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "an unknown " + name
	}
	for l := range bytes.Lines(text) {
		if key, value, ok := strings.Cut(string(l), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "an unknown " + name
}

// libraries returns the versions of the peers' libraries.
func libraries() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown versions"
	}
	var list []string
	for _, d := range info.Deps {
		if strings.HasPrefix(d.Path, "github.com/ThreeDotsLabs/") && !strings.HasSuffix(d.Path, "redisstream") {
			list = append(list, strings.TrimPrefix(d.Path, "github.com/ThreeDotsLabs/")+" "+d.Version)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
