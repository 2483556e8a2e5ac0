package cli

import (
	"bytes"
	"fmt"
	"time"

	"github.com/guptarohit/asciigraph"
	chart "github.com/wcharczuk/go-chart/v2"

	"github.com/redeliver/redeliver/simulate"
)

// line is a series of a chart.
type line struct {
	name   string
	values []float64
}

// graph is the data of a chart.
type graph struct {
	title string
	at    []float64 // seconds since the first message
	lines []line
}

// charts returns the charts of a result: the load on the dependency, the waiting messages, and the DLQ.
func charts(r *simulate.Result) []graph {
	bars := shown(r)
	var at []float64
	attempts, arrived, failed := line{name: "attempts"}, line{name: "arrivals"}, line{name: "failures"}
	waiting, dead := line{name: "waiting"}, line{name: "in the DLQ"}
	deadSoFar := 0
	for _, b := range bars {
		width := time.Duration(b.To - b.From).Seconds()
		at = append(at, time.Duration(b.From).Seconds())
		attempts.values = append(attempts.values, float64(b.Attempts)/width)
		arrived.values = append(arrived.values, float64(b.Arrived)/width)
		failed.values = append(failed.values, float64(b.Failed)/width)
		waiting.values = append(waiting.values, total(b.Waiting))
		deadSoFar += b.Dead
		dead.values = append(dead.values, float64(deadSoFar))
	}
	all := []graph{{"load on the dependency, attempts and failures in a second", at, []line{attempts, failed, arrived}}}
	if r.Retries > 0 {
		all = append(all, graph{"waiting for a retry", at, []line{waiting}})
	}
	if r.Dead > 0 {
		all = append(all, graph{"in the DLQ", at, []line{dead}})
	}
	return all
}

const (
	plotWidth  = 72
	plotHeight = 8
)

// plot draws the first two lines of a graph for a terminal.
func (g *graph) plot() string {
	if len(g.at) < 2 {
		return "too short for a chart: give more --bars\n"
	}
	var data [][]float64
	for _, l := range g.lines[:min(2, len(g.lines))] {
		data = append(data, l.values)
	}
	step := g.at[1] - g.at[0]
	caption := fmt.Sprintf("from 0s to %s", time.Duration((g.at[len(g.at)-1]+step)*float64(time.Second)).Round(time.Second))
	return asciigraph.PlotMany(data, asciigraph.Width(plotWidth), asciigraph.Height(plotHeight), asciigraph.LowerBound(0),
		asciigraph.Precision(0), asciigraph.Caption(caption)) + "\n"
}

const (
	svgWidth  = 960
	svgHeight = 320
)

// drawSVG draws all graphs of a result, one below the other.
func drawSVG(r *simulate.Result) ([]byte, error) {
	var all bytes.Buffer
	graphs := charts(r)
	fmt.Fprintf(&all, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d">`+"\n", svgWidth, svgHeight*len(graphs))
	for i, g := range graphs {
		fmt.Fprintf(&all, `<g transform="translate(0,%d)">`, i*svgHeight)
		if err := g.svg(&all); err != nil {
			return nil, err
		}
		fmt.Fprintln(&all, `</g>`)
	}
	fmt.Fprintln(&all, `</svg>`)
	return all.Bytes(), nil
}

func (g *graph) svg(to *bytes.Buffer) error {
	if len(g.at) < 2 {
		return usagef("the time is too short for a chart: give more --bars")
	}
	c := chart.Chart{
		Title: g.title, Width: svgWidth, Height: svgHeight,
		Background: chart.Style{Padding: chart.Box{Top: 40, Left: 16, Right: 16, Bottom: 16}},
		XAxis: chart.XAxis{ValueFormatter: func(v any) string {
			seconds, _ := v.(float64)
			return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
		}},
		YAxis: chart.YAxis{Range: &chart.ContinuousRange{Max: g.most()}, ValueFormatter: func(v any) string {
			f, _ := v.(float64)
			return fmt.Sprintf("%.4g", f)
		}},
	}
	for _, l := range g.lines {
		c.Series = append(c.Series, chart.ContinuousSeries{Name: l.name, XValues: g.at, YValues: l.values})
	}
	c.Elements = []chart.Renderable{chart.LegendThin(&c)}
	return c.Render(chart.SVG, to)
}

// most returns the highest value of the graph. It is never 0, because an axis must have a length.
func (g *graph) most() float64 {
	most := 0.0
	for _, l := range g.lines {
		for _, v := range l.values {
			most = max(most, v)
		}
	}
	if most == 0 {
		return 1
	}
	return most
}
