package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"text/template"
	"time"
)

// panel is one of a chart's two graphs: a line for each service over time.
type panel struct {
	Title string
	Top   int // its place
	Most  float64
	Lines []curve
	Ticks []tick // of its axis
}

type curve struct{ Color, Points string }

type tick struct {
	At   float64
	Text string
}

// chart has the data of the template.
type chart struct {
	Width, Height     int
	Left, Right, Plot int // where the graphs lie, and how high they are
	DownAt, DownWide  float64
	Panels            []panel
	Legend            []legend
	Ticks             []tick // of the time
}

type legend struct {
	Color, Name string
	At          int
}

// The colors of redeliver's services, in order, and of the peer.
var colors = []string{"#1f77b4", "#2ca02c", "#9467bd"}

const peerColor = "#d62728"

// color returns the color of a service's lines.
func (r *result) color(service int) string {
	if r.Services[service].peer {
		return peerColor
	}
	return colors[service%len(colors)]
}

const (
	chartWidth  = 900
	plotLeft    = 70
	plotRight   = 880
	plotHeight  = 180
	panelHeight = 230
)

var chartTemplate = template.Must(template.New("chart").Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="{{ .Width }}" height="{{ .Height }}" viewBox="0 0 {{ .Width }} {{ .Height }}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#ffffff"/>
{{- range .Panels }}
<g transform="translate(0,{{ .Top }})">
<rect x="{{ $.DownAt }}" y="0" width="{{ $.DownWide }}" height="{{ $.Plot }}" fill="#f4d9d9"/>
<text x="{{ $.Left }}" y="-8" font-weight="bold">{{ .Title }}</text>
{{- range .Ticks }}
<line x1="{{ $.Left }}" x2="{{ $.Right }}" y1="{{ .At }}" y2="{{ .At }}" stroke="#dddddd"/><text x="62" y="{{ .At }}" dy="4" text-anchor="end">{{ .Text }}</text>
{{- end }}
{{- range $.Ticks }}
<text x="{{ .At }}" y="{{ $.Plot }}" dy="16" text-anchor="middle">{{ .Text }}</text>
{{- end }}
{{- range .Lines }}
<polyline fill="none" stroke="{{ .Color }}" stroke-width="2" points="{{ .Points }}"/>
{{- end }}
</g>
{{- end }}
{{- range .Legend }}
<rect x="{{ .At }}" y="10" width="14" height="4" fill="{{ .Color }}"/><text x="{{ .At }}" y="18" dx="20">{{ .Name }}</text>
{{- end }}
</svg>
`))

// svg draws the numbers of waiting messages and of dead letters over time.
func (r *result) svg() []byte {
	last := time.Duration(0)
	for _, s := range r.Services {
		for _, p := range s.samples {
			last = max(last, p.at)
		}
	}
	x := func(at time.Duration) float64 {
		return round(plotLeft + float64(at)/float64(max(last, time.Millisecond))*(plotRight-plotLeft))
	}
	c := chart{
		Width: chartWidth, Height: 50 + 2*panelHeight + 20, Left: plotLeft, Right: plotRight, Plot: plotHeight,
		DownAt: x(r.Time.down), DownWide: round(x(r.Time.up) - x(r.Time.down)),
	}
	for n := range 7 {
		at := last * time.Duration(n) / 6
		c.Ticks = append(c.Ticks, tick{x(at), fmt.Sprintf("%.0f s", at.Seconds())})
	}
	at := plotLeft
	for i, s := range r.Services {
		c.Legend = append(c.Legend, legend{r.color(i), s.Name, at})
		at += 28 + 61*len(s.Name)/10 // about what a letter is wide
	}
	for n, of := range []struct {
		title string
		value func(sample) int
	}{
		{"not yet handled, and not in the DLQ (the outage is shaded)", func(s sample) int { return s.backlog }},
		{"in the DLQ", func(s sample) int { return s.dead }},
	} {
		p := panel{Title: of.title, Top: 60 + n*panelHeight, Most: 1}
		for _, s := range r.Services {
			for _, point := range s.samples {
				p.Most = max(p.Most, float64(of.value(point)))
			}
		}
		y := func(v float64) float64 { return round(plotHeight * (1 - v/p.Most)) }
		for n := range 5 {
			v := p.Most * float64(n) / 4
			p.Ticks = append(p.Ticks, tick{y(v), count(int(v))})
		}
		for i, s := range r.Services {
			var points []string
			for _, point := range s.samples {
				points = append(points, fmt.Sprintf("%g,%g", x(point.at), y(float64(of.value(point)))))
			}
			p.Lines = append(p.Lines, curve{r.color(i), strings.Join(points, " ")})
		}
		c.Panels = append(c.Panels, p)
	}
	var text bytes.Buffer
	if err := chartTemplate.Execute(&text, c); err != nil {
		panic(err) // the template is a constant
	}
	return text.Bytes()
}

// round rounds a coordinate, to keep the file small.
func round(v float64) float64 { return math.Round(v*10) / 10 }
