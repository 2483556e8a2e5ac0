package middleware_test

import (
	"testing"

	"github.com/redeliver/redeliver/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
