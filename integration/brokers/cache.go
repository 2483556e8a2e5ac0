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

// fetched returns the directory of that name in the user's cache directory, which integration/setup.sh has filled as the
// recipe says. part is what the script calls it.
func fetched(name string, recipe []byte, part string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory for the broker's programs: %w", err)
	}
	dir := filepath.Join(cache, "redeliver", name)
	if have, err := os.ReadFile(filepath.Join(dir, "complete")); err != nil || strings.TrimSpace(string(have)) != hashOf(recipe) {
		return "", fmt.Errorf("%s is not in %s: run integration/setup.sh %s", name, filepath.Dir(dir), part)
	}
	return dir, nil
}

func hashOf(recipe []byte) string {
	sum := sha256.Sum256(recipe)
	return hex.EncodeToString(sum[:])
}

// cached returns the directory of that name in the user's cache directory, which fill has filled once per machine as
// the recipe says: with another recipe it is filled anew. Processes that come at the same time wait for the first.
func cached(
	ctx context.Context, name string, recipe []byte, logf func(string, ...any),
	fill func(ctx context.Context, dir string) error,
) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory for the broker's programs: %w", err)
	}
	cache = filepath.Join(cache, "redeliver")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("making the cache directory for the broker's programs: %w", err)
	}
	dir := filepath.Join(cache, name)
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()

	// The marker is written last and holds the recipe's hash: without it the directory is half a download, with
	// another hash it is something else.
	want := hashOf(recipe)
	marker := filepath.Join(dir, "complete")
	if have, err := os.ReadFile(marker); err == nil && string(have) == want {
		return dir, nil
	}
	logf("fetching %s into %s, once", name, dir)
	began := time.Now()
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("clearing half a download: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the directory for the broker's programs: %w", err)
	}
	if err := fill(ctx, dir); err != nil {
		return "", err
	}
	if err := os.WriteFile(marker, []byte(want), 0o644); err != nil {
		return "", fmt.Errorf("marking the broker's programs as complete: %w", err)
	}
	logf("fetched %s in %.1fs", name, time.Since(began).Seconds())
	return dir, nil
}
