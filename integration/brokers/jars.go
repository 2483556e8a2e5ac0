package brokers

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// javaOf finds the requirements of a broker that is written in Java: the virtual machine, and the directory with the
// jars that its pom names.
func javaOf(broker, env string, pom []byte) (java, lib string, err error) {
	java, err = exec.LookPath("java")
	if err != nil {
		return "", "", fmt.Errorf("java is not installed, and %s runs on it: run integration/setup.sh, or name a running %s in %s",
			broker, broker, env)
	}
	dir, err := fetched(broker, pom, part(broker))
	return java, filepath.Join(dir, "lib"), err
}

// part returns the name of a broker in integration/setup.sh.
func part(broker string) string {
	if broker == "elasticmq" {
		return "sqs"
	}
	return broker
}
