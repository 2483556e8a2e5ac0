package main

import (
	_ "embed"
	"strings"
	"text/template"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

//go:embed page.md.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"whole": func(v any) string { return whole(number(v)) },
	"about": about,
}).Parse(pageText))

// number makes what the template has at hand a number.
func number(v any) float64 {
	switch v := v.(type) {
	case int:
		return float64(v)
	case float64:
		return v
	default:
		return 0
	}
}

// page is docs/evidence/capacity.md.
func page(l load, f figures) (string, error) {
	var b strings.Builder
	err := pageTemplate.Execute(&b, struct {
		reckoning
		F                        figures
		CPU, Flood               float64
		Levels, Topics           int
		BrokerReplicas, MapLimit int
	}{
		reckoning: reckon(l, f), F: f, CPU: f.cpuPerRetry() * 1e6, Flood: f.FloodRate * retriesEach,
		Levels: len(delayqueue.NewLadder(redeliver.Policy{})), Topics: l.Groups * (len(delayqueue.NewLadder(redeliver.Policy{})) + 4),
		BrokerReplicas: brokerReplicas, MapLimit: mapLimit,
	})
	return b.String(), err
}
