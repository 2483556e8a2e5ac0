package sidecar

import (
	"io"
	"log"
	"os"
	"testing"
)

// quiet is for test servers that break connections intentionally.
var quiet = log.New(io.Discard, "", 0)

// asChild makes this test's binary a child of Exec. Its value selects what the child does.
const asChild = "SIDECAR_TEST_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(asChild); what != "" {
		os.Exit(child(what, os.Args[1:]))
	}
	os.Exit(m.Run())
}
