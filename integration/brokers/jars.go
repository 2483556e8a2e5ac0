package brokers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// jars returns a directory with the jars that pom names. They are fetched by Maven once per machine into the user's
// cache directory; processes that come at the same time wait for the first.
func jars(ctx context.Context, name string, pom []byte, logf func(string, ...any)) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory for the broker's jars: %w", err)
	}
	cache = filepath.Join(cache, "redeliver")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("making the cache directory for the broker's jars: %w", err)
	}
	dir := filepath.Join(cache, name)
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()

	// The marker is written last and holds the pom's hash: without it the directory is half a download, with
	// another hash it is another set of jars.
	sum := sha256.Sum256(pom)
	want := hex.EncodeToString(sum[:])
	marker := filepath.Join(dir, "complete")
	lib := filepath.Join(dir, "lib")
	if have, err := os.ReadFile(marker); err == nil && string(have) == want {
		return lib, nil
	}
	logf("fetching %s with maven into %s, once", name, dir)
	began := time.Now()
	if err := fetchJars(ctx, dir, lib, pom); err != nil {
		return "", err
	}
	if err := os.WriteFile(marker, []byte(want), 0o644); err != nil {
		return "", fmt.Errorf("marking the broker's jars as complete: %w", err)
	}
	logf("fetched %s in %.1fs", name, time.Since(began).Seconds())
	return lib, nil
}

func fetchJars(ctx context.Context, dir, lib string, pom []byte) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return errors.New("mvn is not installed, and a broker is fetched with it: install maven (apt-get install maven)")
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clearing half a download: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory for the broker's jars: %w", err)
	}
	file := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(file, pom, 0o644); err != nil {
		return fmt.Errorf("writing the broker's pom.xml: %w", err)
	}
	// -U: Maven remembers a jar that it could not get once, and would not ask again.
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-U", "-f", file,
		"dependency:copy-dependencies", "-DoutputDirectory="+lib)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("maven could not fetch the broker's jars: %w; it said:\n%s", err, lastLines(string(out), 30))
	}
	return nil
}
