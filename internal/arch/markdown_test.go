package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	mdLink  = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	mdProof = regexp.MustCompile(`\[([A-Z]\w+)\]\(([^()\s]+\.go)\)`)
	mdCode  = regexp.MustCompile("`[^`]*`")
	// A number that somebody has measured, in the units in which speed is told.
	measured = regexp.MustCompile(`\d (messages|msg|records)/s|\d (ns|µs)\b`)
)

// pages are the Markdown files of the tree, by their paths from the root, without what
// stands in code blocks.
func pages(t *testing.T) map[string]string {
	t.Helper()
	base, all := root(t), make(map[string]string)
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata" || d.Name() == "node_modules") && path != base {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(base, path)
		all[filepath.ToSlash(rel)] = prose(string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// prose is a page with nothing in the lines of its code blocks.
func prose(text string) string {
	var b strings.Builder
	fence := ""
	for line := range strings.Lines(text) {
		mark := strings.TrimSpace(line)
		switch {
		case fence == "" && strings.HasPrefix(mark, "```"):
			fence = "```"
		case fence != "" && mark == fence:
			fence = ""
		case fence == "":
			b.WriteString(line)
			continue
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Every link inside the tree leads somewhere, its anchor included.
func TestMarkdownLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	all, seen, anchored := pages(t), 0, 0
	for page, text := range all {
		for _, m := range mdLink.FindAllStringSubmatch(mdCode.ReplaceAllString(text, "``"), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			seen++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(page), path))
			}
			if _, err := os.Stat(filepath.Join(root(t), target)); err != nil {
				t.Errorf("%s leads to %s: %v", page, m[1], err)
				continue
			}
			if anchor != "" {
				anchored++
				if !slices.Contains(anchors(all[target]), anchor) {
					t.Errorf("%s leads to %s, and no heading there is called so", page, m[1])
				}
			}
		}
	}
	if len(all) < 20 || seen < 200 || anchored < 5 {
		t.Errorf("%d pages with %d links, %d with an anchor: this test does not read them", len(all), seen, anchored)
	}
}

// anchors are the headings of a page as an address names them.
func anchors(text string) (all []string) {
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			name := strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
					return unicode.ToLower(r)
				default:
					return -1
				}
			}, strings.TrimSpace(title))
			all = append(all, name)
		}
	}
	return all
}

// A link whose text is the name of a test, or of a promise of the conformance kit, leads
// to the file that has it.
func TestMarkdownNamesTestsThatAreThere(t *testing.T) {
	t.Parallel()
	seen := 0
	for page, text := range pages(t) {
		for _, m := range mdProof.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[2], "://") {
				continue
			}
			seen++
			if !proves(t, filepath.Join(filepath.Dir(page), m[2]), m[1]) {
				t.Errorf("%s: there is no %s in %s", page, m[1], m[2])
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d links to tests: this test does not see them", seen)
	}
}

// proves tells whether a file has a test, or a promise of the kit, of that name.
func proves(t *testing.T, file, name string) bool {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root(t), file))
	if err != nil {
		t.Errorf("%v", err)
		return false
	}
	if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") {
		return strings.Contains(string(source), "\nfunc "+name+"(")
	}
	return strings.Contains(string(source), `name: "`+name+`"`)
}

// Each promise of the README leads to a test, and what was measured to how.
func TestReadmeProvesWhatItPromises(t *testing.T) {
	t.Parallel()
	text := pages(t)["README.md"]
	for heading, least := range map[string]int{"What is promised": 7, "What each broker can promise": 13} {
		_, section, _ := strings.Cut(text, "\n## "+heading+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		rows := 0
		for line := range strings.Lines(section) {
			if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| | ") || strings.HasPrefix(line, "| ---") || strings.HasPrefix(line, "| Guarantee |") || strings.HasPrefix(line, "| not promised |") {
				continue
			}
			rows++
			if !mdProof.MatchString(line) {
				t.Errorf("%s: a row without a test: %.80s", heading, line)
			}
		}
		if rows < least {
			t.Errorf("%s: %d rows, of at least %d: this test does not read them", heading, rows, least)
		}
	}
	numbers := 0
	for line := range strings.Lines(text) {
		if measured.MatchString(line) {
			numbers++
			if !strings.Contains(line, "`make bench") && !strings.Contains(line, "](docs/benchmarks.md") && !strings.Contains(line, "`go test") {
				t.Errorf("the README says a number, and not how it was measured: %.120s", line)
			}
		}
	}
	if numbers == 0 {
		t.Error("the README says no number: this test does not see them")
	}
}
