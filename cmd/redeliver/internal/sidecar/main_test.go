package sidecar

import (
	"io"
	"log"
	"os"
	"testing"
)

// quiet is for servers of tests that break off by intention.
var quiet = log.New(io.Discard, "", 0)

// asChild makes this test's binary a child of Exec; its value is what it does.
const asChild = "SIDECAR_TEST_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(asChild); what != "" {
		os.Exit(child(what, os.Args[1:]))
	}
	os.Exit(m.Run())
}
