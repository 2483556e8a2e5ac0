package prom

import "github.com/prometheus/client_golang/prometheus"

// gauge returns a metric for one scrape. If a label is not UTF-8, as in the name of a group, the scrape has an error. A
// panic in a collector would end the process.
func gauge(desc *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	m, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return m
}
