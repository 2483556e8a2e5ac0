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

// page is docs/evidence/outage-run.md.
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

// Title is the broker's name for people.
func (r *result) Title() string { return r.Version }

// Chart is the name of its chart's file.
func (r *result) Chart() string { return "outage-run-" + r.Broker + ".svg" }

// Times of a timeline in words.
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

// share is a part of all messages.
func share(n, of int) string {
	if n == 0 || of == 0 {
		return "0"
	}
	return fmt.Sprintf("%s (%.1f %%)", count(n), 100*float64(n)/float64(of))
}

// machine is what it ran on.
func machine() string {
	return fmt.Sprintf("%d cores of %s, %s", runtime.NumCPU(), procLine("/proc/cpuinfo", "model name"), runtime.Version())
}

// procLine is the value of a "name: value" line.
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

// libraries are the peers' versions.
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
