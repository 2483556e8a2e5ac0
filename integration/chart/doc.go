// Package chart tests the Helm chart deploy/helm/redeliver. Its tests render it with Helm itself, which takes minutes
// to build, so they have the build tag chart, and make chart-check runs them.
package chart
