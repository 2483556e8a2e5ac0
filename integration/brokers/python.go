package brokers

import (
	"bufio"
	_ "embed" // for the requirements below
	"path/filepath"
	"strings"
)

//go:embed python/requirements.txt
var pythonRequirements []byte

// Python returns the Python of a virtual environment in the user's cache directory with the packages of
// python/requirements.txt: boto3, an SQS client that shares no code with ours, and the moto server.
func Python() (string, error) {
	dir, err := fetched("python", pythonRequirements, "moto")
	return filepath.Join(dir, "venv", "bin", "python"), err
}

// motoVersion returns the version in the requirements.
func motoVersion() string {
	lines := bufio.NewScanner(strings.NewReader(string(pythonRequirements)))
	for lines.Scan() {
		if version, ok := strings.CutPrefix(lines.Text(), "moto=="); ok {
			return version
		}
	}
	return "(unknown)"
}
