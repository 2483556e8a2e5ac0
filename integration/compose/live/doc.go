// Package live looks at a suite of integration/compose that runs. Its tests have the build tag compose, and
// make compose-test runs them: they are nothing without docker compose.
package live
