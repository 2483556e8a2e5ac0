package release

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// one returns the match of a pattern in a file, which must be the same everywhere in it.
func one(t *testing.T, file, pattern string) string {
	t.Helper()
	found := ""
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1) {
		if found != "" && m[1] != found {
			t.Errorf("%s has both %s and %s", file, found, m[1])
		}
		found = m[1]
	}
	if found == "" {
		t.Errorf("%s has nothing like %s", file, pattern)
	}
	return found
}

// Versions that are in several files are the same in each.
func TestVersionsAgree(t *testing.T) {
	t.Parallel()
	for what, places := range map[string]map[string]string{
		"the image that Go is in": {
			"Dockerfile": `golang:(\S+)`, "Makefile": `GO_IMAGE \?= golang:(\S+)`, "integration/compose/suites/services.yml": `golang:([^}]+)}`,
		},
		"Go": {
			"Dockerfile": `golang:(\d[\d.]+)-`, "go.mod": `(?m)^toolchain go(\S+)$`, "observe/otel/go.mod": `(?m)^toolchain go(\S+)$`, "cmd/redeliver/go.mod": `(?m)^toolchain go(\S+)$`,
			"integration/go.mod": `(?m)^toolchain go(\S+)$`, "go.work": `(?m)^toolchain go(\S+)$`,
			"THIRD_PARTY_LICENSES.md": `\| Go and its standard library \| go(\S+) \|`,
		},
		"the go.mod of cyclonedx-gomod": {".goreleaser.yaml": `-modfile, \.\./\.\./(\S+),`, "Makefile": `-modfile (\S+) cyclonedx-gomod`},
		"helm":                          {"integration/chart/chart_test.go": `helmVersion = "(v[\d.]+)"`, "Makefile": `helm/v3/cmd/helm@(v[\d.]+)`},
	} {
		version := ""
		for file, pattern := range places {
			switch v := one(t, file, pattern); version {
			case "", v:
				version = v
			default:
				t.Errorf("%s is %s in %s, and %s elsewhere", what, v, file, version)
			}
		}
	}
	if image := one(t, "Dockerfile", `golang:(\S+)`); !strings.Contains(image, "@sha256:") {
		t.Errorf("the image %s has no digest", image)
	}
}

// -ldflags -X silently sets nothing if the name is wrong.
func TestLinkerFlagsNameExistingVariables(t *testing.T) {
	t.Parallel()
	source := read(t, "cmd/redeliver/internal/cli/version.go")
	for _, file := range []string{"Dockerfile", ".goreleaser.yaml"} {
		names := regexp.MustCompile(`-X (\S+)\.(\w+)=`).FindAllStringSubmatch(read(t, file), -1)
		if len(names) != 2 {
			t.Errorf("%s sets %d names", file, len(names))
		}
		for _, n := range names {
			if n[1] != "github.com/redeliver/redeliver/cmd/redeliver/internal/cli" ||
				!regexp.MustCompile(`(?m)^var .*\b`+n[2]+`\b.* string$`).MatchString(source) {
				t.Errorf("%s sets %s.%s, which version.go does not have", file, n[1], n[2])
			}
		}
	}
}

// The files of the archives and of the image exist.
func TestReleasedFilesExist(t *testing.T) {
	t.Parallel()
	var config struct {
		Archives []struct {
			Files []string `yaml:"files"`
		} `yaml:"archives"`
		Builds []struct {
			Dir string `yaml:"dir"`
		} `yaml:"builds"`
	}
	if err := yaml.Unmarshal([]byte(read(t, ".goreleaser.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	if len(config.Archives) != 1 || len(config.Archives[0].Files) < 5 || len(config.Builds) != 1 {
		t.Fatalf("this test does not see the released messages: %+v", config)
	}
	for _, file := range config.Archives[0].Files {
		read(t, file)
	}
	read(t, config.Builds[0].Dir+"/go.mod")
	read(t, one(t, ".goreleaser.yaml", `-modfile, \.\./\.\./(\S+),`))
	ignored := read(t, ".dockerignore")
	for _, m := range regexp.MustCompile(`(?m)^COPY --from=build /src/(.*) /licenses/$`).FindAllStringSubmatch(read(t, "Dockerfile"), -1) {
		for file := range strings.FieldsSeq(m[1]) {
			if file = strings.TrimPrefix(file, "/src/"); !strings.Contains(ignored, "!/"+file+"\n") {
				t.Errorf("the Dockerfile copies %s, which .dockerignore keeps out", file)
			}
		}
	}
}
