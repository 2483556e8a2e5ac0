package brokers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// fetched returns a directory in the user's cache directory that integration/setup.sh has filled according to the
// recipe. part is the script's name for it.
func fetched(name string, recipe []byte, part string) (string, error) {
	dir, err := cacheDir(name)
	if err != nil {
		return "", err
	}
	if !isComplete(dir, recipe) {
		return "", fmt.Errorf("%s is not there, or is of another version: run REDELIVER_TEST_WAY=native integration/setup.sh %s", dir, part)
	}
	return dir, nil
}

func cacheDir(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory for the broker's programs: %w", err)
	}
	return filepath.Join(cache, "redeliver", name), nil
}

// markerOf returns the file in a directory of the cache that holds the hash of its recipe. It is written last. Without
// it the directory is incomplete, and with another hash it has other content.
func markerOf(dir string) string { return filepath.Join(dir, "complete") }

func isComplete(dir string, recipe []byte) bool {
	have, err := os.ReadFile(markerOf(dir))
	return err == nil && strings.TrimSpace(string(have)) == hashOf(recipe)
}

func hashOf(recipe []byte) string {
	sum := sha256.Sum256(recipe)
	return hex.EncodeToString(sum[:])
}

// cached returns a directory in the user's cache directory that fill has filled according to the recipe, once per
// machine. If the recipe changes, fill runs again. Concurrent processes wait for the first one.
func cached(
	ctx context.Context, name string, recipe []byte, logf func(string, ...any),
	fill func(ctx context.Context, dir string) error,
) (string, error) {
	dir, err := cacheDir(name)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("making the cache directory for the broker's programs: %w", err)
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()

	if isComplete(dir, recipe) {
		return dir, nil
	}
	logf("making %s in %s, once", name, dir)
	began := time.Now()
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("clearing what is half made: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the directory for the broker's programs: %w", err)
	}
	if err := fill(ctx, dir); err != nil {
		return "", err
	}
	if err := os.WriteFile(markerOf(dir), []byte(hashOf(recipe)), 0o644); err != nil {
		return "", fmt.Errorf("marking the broker's programs as complete: %w", err)
	}
	logf("made %s in %.1fs", name, time.Since(began).Seconds())
	return dir, nil
}
