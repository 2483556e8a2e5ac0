package prom

import "github.com/prometheus/client_golang/prometheus"

// gauge is a series that is asked for at a scrape. A label that is not UTF-8, as a group's
// name may be, makes it an error of the scrape: a panic in a collector ends the process.
func gauge(desc *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	m, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return m
}
