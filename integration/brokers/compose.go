package brokers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// findCompose returns the command for compose, if a docker daemon answers. It accepts both the plugin and the older
// separate program.
func findCompose(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "docker", "info", "--format", "{{.ServerVersion}}").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("no docker daemon answers: %w: %s", err, strings.TrimSpace(string(out)))
	}
	for _, command := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		if exec.CommandContext(ctx, command[0], append(command[1:], "version")...).Run() == nil {
			return command, nil
		}
	}
	return nil, errors.New("docker runs, but neither docker compose nor docker-compose is installed")
}

// composed is one compose project with one service, started for one Broker.
type composed struct {
	command []string // docker compose
	files   []string
	project string
	service string
	env     []string
	dir     string

	mu   sync.Mutex // the end of a context may call kill
	made bool       // the container exists
	down bool       // we stopped or killed it
}

// newComposed writes the input of compose: the compose file, a second one with the test's overrides for the service
// (JSON is YAML), and files that they mount. env has the variables of the compose file.
func newComposed(
	command []string, service string, base []byte, over map[string]any, files map[string]string, env ...string,
) (*composed, error) {
	dir, err := os.MkdirTemp("", "redeliver-compose-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for the compose files: %w", err)
	}
	c := &composed{
		command: command,
		files:   []string{filepath.Join(dir, "compose.yml"), filepath.Join(dir, "over.yml")},
		project: strings.ToLower(filepath.Base(dir)), // as unique as the directory
		service: service,
		env:     append(os.Environ(), env...),
		dir:     dir,
	}
	merged, err := json.Marshal(map[string]any{"services": map[string]any{service: over}})
	if err == nil {
		err = errors.Join(os.WriteFile(c.files[0], base, 0o600), os.WriteFile(c.files[1], merged, 0o600))
	}
	for name, text := range files { // the user in the container must be able to read them
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("writing the compose files: %w", err), os.RemoveAll(dir))
	}
	return c, nil
}

// run runs one compose command with a timeout, because a hanging daemon must not block the tests.
func (c *composed) run(ctx context.Context, limit time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	argv := append([]string{}, c.command...)
	argv = append(argv, "-p", c.project)
	for _, f := range c.files {
		argv = append(argv, "-f", f)
	}
	argv = append(argv, args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = c.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w; it said:\n%s", strings.Join(argv, " "), err, lastLines(string(out), 20))
	}
	return string(out), nil
}

func (c *composed) start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The first "up" may pull the image. Later, "start" reuses the container with its data.
	args := []string{"start", c.service}
	if !c.made {
		args = []string{"up", "-d", c.service}
	}
	c.made = true // even if up fails half-way, there may be something to remove
	if _, err := c.run(ctx, 5*time.Minute, args...); err != nil {
		return err
	}
	c.down = false
	return nil
}

func (c *composed) stop(bool) error {
	return c.end("stop", "-t", "30", c.service)
}

func (c *composed) kill() error {
	return c.end("kill", "-s", "SIGKILL", c.service)
}

// end runs detached from the caller's context, because it ends the broker when that context is over.
func (c *composed) end(args ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down || !c.made {
		return nil
	}
	c.down = true
	_, err := c.run(context.Background(), time.Minute, args...)
	return err
}

// ended asks for the running containers of the project. If docker does not answer, it returns nil, because the state is
// unknown.
func (c *composed) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down || !c.made {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	// Not compose ps: its two generations differ in whether it lists stopped containers.
	out, err := exec.CommandContext(ctx, "docker", "ps", "-q", "--filter", "label=com.docker.compose.project="+c.project).Output()
	if err == nil && strings.TrimSpace(string(out)) == "" {
		return errors.New("its container is not running")
	}
	return nil
}

func (c *composed) logTail() string {
	out, err := c.run(context.Background(), 20*time.Second, "logs", "--no-color", "--tail", "40", c.service)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	return out
}

func (c *composed) remove(keepLog bool) (string, error) {
	kept := ""
	var logErr error
	if keepLog {
		kept = c.dir + ".log"
		out, err := c.run(context.Background(), time.Minute, "logs", "--no-color", c.service)
		if err == nil {
			err = os.WriteFile(kept, []byte(out), 0o600)
		}
		if err != nil {
			kept, logErr = "", fmt.Errorf("keeping the broker's log: %w", err)
		}
	}
	_, err := c.run(context.Background(), time.Minute, "down", "-v", "-t", "5")
	return kept, errors.Join(logErr, err, os.RemoveAll(c.dir))
}
