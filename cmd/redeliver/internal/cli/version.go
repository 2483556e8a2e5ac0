package cli

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionRow is what version prints.
type versionRow struct {
	Version  string `json:"version"`            // of the command; "(devel)" if built in its repository
	Library  string `json:"library,omitempty"`  // of github.com/redeliver/redeliver, if it differs
	Go       string `json:"go"`                 // Go version of the build
	Platform string `json:"platform"`           // operating system and architecture
	Commit   string `json:"commit,omitempty"`   // if known at build time
	Modified bool   `json:"modified,omitempty"` // the tree had uncommitted changes
}

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version and how it was built", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			v := built()
			return a.printOne(v, func(t *details) {
				t.line("version", v.Version)
				t.line("library", v.Library)
				t.line("go", v.Go)
				t.line("platform", v.Platform)
				t.line("commit", v.Commit)
			})
		},
	}
}

// A release sets these with -ldflags -X, because its sources have no .git directory.
var release, commit string

func built() versionRow {
	v := versionRow{Version: "(unknown)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	for _, m := range info.Deps {
		if m.Path == "github.com/redeliver/redeliver" && m.Replace == nil && m.Version != v.Version {
			v.Library = m.Version
		}
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	v.Version, v.Commit = cmp.Or(release, v.Version), cmp.Or(commit, v.Commit)
	return v
}
