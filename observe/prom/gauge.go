package prom

import "github.com/prometheus/client_golang/prometheus"

// gauge returns a metric for one scrape. If a label is not UTF-8, as the name of a group may be, the metric is an error of the
// scrape: a panic in a collector would end the process.
func gauge(desc *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	m, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return m
}
