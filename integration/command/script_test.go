package command_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tool replaces one of Kafka's programs. It records its arguments.
const tool = `#!/bin/sh
printf '%s\0' "${0##*/}" "$@" >>"$CALLS"
printf '\n\0' >>"$CALLS"
`

// calls runs a script in a shell, as an administrator would, and returns the name and the arguments of each tool that
// it has called.
func calls(t *testing.T, script string, args ...string) (all [][]string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"kafka-topics.sh", "kafka-acls.sh"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(tool), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	file, called := filepath.Join(dir, "script"), filepath.Join(dir, "calls")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", append([]string{file}, args...)...)
	cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "CALLS=" + called}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, script)
	}
	text, err := os.ReadFile(called)
	if err != nil {
		t.Fatal(err)
	}
	call := []string{}
	for arg := range bytes.SplitSeq(bytes.TrimSuffix(text, []byte{0}), []byte{0}) {
		if string(arg) != "\n" {
			call = append(call, string(arg))
			continue
		}
		all, call = append(all, call), []string{}
	}
	return all
}

// flagsOf parses the arguments of one call, as Kafka's programs do. Each flag has a value, except those in bare.
func flagsOf(t *testing.T, call []string, bare ...string) map[string][]string {
	t.Helper()
	flags := make(map[string][]string)
	for i := 1; i < len(call); i++ {
		name, ok := strings.CutPrefix(call[i], "--")
		if !ok {
			t.Fatalf("%q is not a flag in %q", call[i], call)
		}
		if slices.Contains(bare, name) {
			flags[name] = []string{}
			continue
		}
		if i++; i == len(call) {
			t.Fatalf("--%s has no value in %q", name, call)
		}
		flags[name] = append(flags[name], call[i])
	}
	return flags
}
