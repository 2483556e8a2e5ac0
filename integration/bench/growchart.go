package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	chart "github.com/wcharczuk/go-chart/v2"
	"github.com/wcharczuk/go-chart/v2/drawing"
)

const (
	chartWidth  = 960
	chartHeight = 460

	// The legend puts a line after each name, at the width of a font narrower than the browser's: this is the
	// difference.
	legendGap = "        "
)

// colors are the colors of drawn, in order; the library has only five.
var colors = []string{"1f77b4", "98df8a", "2ca02c", "145214", "ff7f0e", "9467bd", "8c564b"}

// points returns a row's points, ascending, with their labels.
func (r *rowResult) points() (at []float64, labels map[float64]string) {
	labels = make(map[float64]string)
	for _, f := range r.Figures {
		if f.Quantity == "" {
			continue
		}
		labels[f.At] = strings.TrimPrefix(f.Name, f.Quantity+", ")
		at = append(at, f.At)
	}
	slices.Sort(at)
	return slices.Compact(at), labels
}

// quantities returns the quantities that a row measured at its points, in the order in which they were added.
func (r *rowResult) quantities() (all []string) {
	for _, f := range r.Figures {
		if f.Quantity != "" && !slices.Contains(all, f.Quantity) {
			all = append(all, f.Quantity)
		}
	}
	return all
}

// at is the figure of a quantity at a point; nil where it was not measured.
func (r *rowResult) at(quantity string, at float64) *figure {
	i := slices.IndexFunc(r.Figures, func(f *figure) bool { return f.Quantity == quantity && f.At == at }) //nolint:floatcompare // It is the same whole number.
	if i < 0 {
		return nil
	}
	return r.Figures[i]
}

// draw is the chart of a row: a line for each quantity, both axes logarithmic. The library's own logarithmic axis
// begins at 1 and has no fractions, so the logarithms are drawn, and the axes are labelled with the numbers.
func (r *rowResult) draw() ([]byte, error) {
	at, labels := r.points()
	if len(at) < 2 {
		return nil, fmt.Errorf("%s was measured at %d points: a line needs two", r.Name, len(at))
	}
	lines, low, high := r.lines(at)
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s has nothing above zero to draw", r.Name)
	}
	bottom, top := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	if top == bottom { //nolint:floatcompare // Both are whole numbers.
		top++
	}
	grid := chart.Style{StrokeColor: chart.ColorAlternateLightGray, StrokeWidth: 1}
	c := chart.Chart{
		Title: r.Name, Width: chartWidth, Height: chartHeight,
		Background: chart.Style{Padding: chart.Box{Top: 40, Left: 250, Right: 24, Bottom: 16}},
		XAxis: chart.XAxis{Name: r.Axis, Ticks: marks(at, func(x float64) string { return labels[x] }), GridMajorStyle: grid, GridMinorStyle: grid,
			Range: &chart.ContinuousRange{Min: math.Log10(at[0]), Max: math.Log10(at[len(at)-1])}},
		YAxis: chart.YAxis{Range: &chart.ContinuousRange{Min: bottom, Max: top}, GridMajorStyle: grid, GridMinorStyle: grid},
	}
	var decades []float64
	for d := bottom; d <= top; d++ {
		decades = append(decades, math.Pow(10, d))
	}
	c.YAxis.Ticks = marks(decades, decade)
	c.Series = lines
	c.Elements = []chart.Renderable{chart.LegendLeft(&c)}
	var b bytes.Buffer
	if err := c.Render(chart.SVG, &b); err != nil {
		return nil, fmt.Errorf("drawing %s: %w", r.Name, err)
	}
	return append(b.Bytes(), '\n'), nil
}

// lines returns a chart's lines, in logarithms, and their range of values.
func (r *rowResult) lines(at []float64) (lines []chart.Series, low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for i, quantity := range chartQuantities {
		var xs, ys []float64
		unit := ""
		for _, x := range at {
			if f := r.at(quantity, x); f != nil && f.Median > 0 {
				xs, ys, unit = append(xs, math.Log10(x)), append(ys, math.Log10(f.Median)), f.Unit
				low, high = min(low, f.Median), max(high, f.Median)
			}
		}
		if len(xs) < 2 {
			continue
		}
		lines = append(lines, chart.ContinuousSeries{
			Name: quantity + ", " + unit + legendGap, XValues: xs, YValues: ys,
			Style: chart.Style{StrokeWidth: 2, DotWidth: 3, StrokeColor: drawing.ColorFromHex(colors[i]), DotColor: drawing.ColorFromHex(colors[i])},
		})
	}
	return lines, low, high
}

func decade(v float64) string {
	if v >= 1 {
		return commas(v)
	}
	return fmt.Sprintf("%g", v)
}

// marks returns the labelled ticks of an axis.
func marks(at []float64, text func(float64) string) []chart.Tick {
	ticks := make([]chart.Tick, 0, len(at))
	for _, v := range at {
		ticks = append(ticks, chart.Tick{Value: math.Log10(v), Label: text(v)})
	}
	return ticks
}

// chartName is the file of a row's chart, as docs/evidence/benchmarks.md has it.
func (r *rowResult) chartName() string { return r.Name + ".svg" }

// saveCharts writes the chart of every row that has one.
func (r *report) saveCharts(dir string) error {
	for _, row := range r.Rows {
		if at, _ := row.points(); len(at) < 2 {
			continue
		}
		text, err := row.draw()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, row.chartName()), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// section formats a row that grows for docs/evidence/benchmarks.md: its chart, and a line for each point.
func (r *rowResult) section() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n### `%s`\n\n%s.\n\n", r.Name, r.What)
	at, labels := r.points()
	if len(at) > 1 {
		fmt.Fprintf(&b, "![%s](%s)\n\n", r.Name, r.chartName())
	}
	quantities := r.quantities()
	fmt.Fprintf(&b, "| %s |", cell(r.Axis))
	for _, q := range quantities {
		fmt.Fprintf(&b, " %s |", q)
	}
	fmt.Fprintf(&b, "\n|%s\n", strings.Repeat(" --- |", 1+len(quantities)))
	for _, x := range at {
		fmt.Fprintf(&b, "| %s |", labels[x])
		for _, q := range quantities {
			text := "-"
			if f := r.at(q, x); f != nil {
				text = f.text()
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		b.WriteByte('\n')
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "\n%s.\n", strings.ToUpper(n[:1])+n[1:])
	}
	for _, p := range r.Problems {
		first, _, _ := strings.Cut(strings.TrimSpace(p), "\n")
		fmt.Fprintf(&b, "\nProblem: %s\n", first)
	}
	return b.String()
}
