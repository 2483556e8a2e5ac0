package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/redeliver/redeliver"
)

var (
	mdLink     = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	mdProof    = regexp.MustCompile(`\[([A-Z]\w+)\]\(([^()\s]+\.go)\)`)
	mdTestFile = regexp.MustCompile(`\]\([^()\s]+_test\.go\)`)
	mdCode     = regexp.MustCompile("`[^`]*`")
	// A measured number, in units of speed or size.
	measured = regexp.MustCompile(`\d (messages|msg|records)/s|\d (ns|µs|us)\b|(about|some) [\d.,]+ (bytes|MB|MiB|milliseconds)\b`)
	// How it was measured: a command, or the page that has the commands.
	measuredBy = regexp.MustCompile("`[^`]*(make bench|make image|bin/bench|go test|docker images)[^`]*`|\\]\\([^)]*benchmarks\\.md[)#]")
)

// pages returns the Markdown files of the tree, by their paths from the root, without their code blocks.
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

// prose returns a page whose lines in code blocks are empty.
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

// Every link inside the tree leads to a file, and its anchor to a heading.
func TestMarkdownLinksExist(t *testing.T) {
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
				t.Errorf("%s links to %s: %v", page, m[1], err)
				continue
			}
			if anchor != "" {
				anchored++
				if !slices.Contains(anchors(all[target]), anchor) {
					t.Errorf("%s links to %s, and that heading does not exist", page, m[1])
				}
			}
		}
	}
	if len(all) < 20 || seen < 200 || anchored < 5 {
		t.Errorf("read only %d pages with %d links, %d with an anchor", len(all), seen, anchored)
	}
}

// written reports whether people write and read a page: not the licences, and not a table that a test runs.
func written(page string) bool {
	return page != "THIRD_PARTY_LICENSES.md" && (!strings.Contains(page, "/") || strings.HasPrefix(page, "docs/") || strings.HasPrefix(page, "examples/"))
}

// maxLine is the number of characters that a line of Markdown may have, outside tables and code.
const maxLine = 120

func TestMarkdownLinesAreShort(t *testing.T) {
	t.Parallel()
	lines := 0
	for page, text := range pages(t) {
		if !written(page) {
			continue
		}
		before, code := "", false
		for line := range strings.Lines(text) {
			line = strings.TrimRight(line, "\n")
			indented := strings.HasPrefix(line, "    ")
			code = indented && (code || before == "") // An indented block of code follows an empty line.
			before = line
			if code || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "[![") || strings.HasPrefix(line, "![") {
				continue
			}
			lines++
			if n := utf8.RuneCountInString(line); n > maxLine {
				t.Errorf("%s: a line of %d characters, want at most %d: %.60s", page, n, maxLine, line)
			}
		}
	}
	if lines < 2000 {
		t.Errorf("read only %d lines", lines)
	}
}

// maxPackageComment is the number of lines that a package comment may have: more details belong in docs/reference.
const maxPackageComment = 60

func TestPackageCommentsAreShort(t *testing.T) {
	t.Parallel()
	seen := 0
	err := filepath.WalkDir(root(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "doc.go" || strings.Contains(path, "/integration/") || strings.Contains(path, "/cmd/") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen++
		comment, _, _ := strings.Cut(string(text), "\npackage ")
		if n := strings.Count(comment, "\n") + 1; n > maxPackageComment {
			t.Errorf("%s has %d lines, want at most %d; move details to docs/reference", path, n, maxPackageComment)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 10 {
		t.Errorf("read only %d package comments", seen)
	}
}

// anchors returns the headings of a page in the form of link anchors.
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

// A link whose text is the name of a test, or of a promise of the conformance kit, leads to the file with that test.
func TestMarkdownNamesExistingTests(t *testing.T) {
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
		t.Errorf("read only %d links to tests", seen)
	}
}

// proves reports whether a file has a test, or a promise of the kit, of that name.
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

// A block of Go below the comment "A part of FILE; a test compares them." is in that file unchanged, except for its
// indentation.
func TestPagesShowPartsOfPrograms(t *testing.T) {
	t.Parallel()
	part := regexp.MustCompile("(?s)<!-- A part of (\\S+); a test compares them. -->\n```go\n(.*?)```\n")
	compared := 0
	for page := range pages(t) {
		text, err := os.ReadFile(filepath.Join(root(t), page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range part.FindAllStringSubmatch(string(text), -1) {
			compared++
			program, err := os.ReadFile(filepath.Join(root(t), m[1]))
			if err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			indented := strings.ReplaceAll("\n"+m[2], "\n", "\n\t")
			if indented = strings.TrimRight(strings.ReplaceAll(indented, "\n\t\n", "\n\n"), "\t"); !strings.Contains(string(program), indented) {
				t.Errorf("%s: the part of %s is not in that file; copy it again", page, m[1])
			}
		}
	}
	if compared < 7 {
		t.Errorf("compared only %d blocks, want at least 7", compared)
	}
}

// Every program that the README runs exists.
func TestReadmeRunsProgramsThatExist(t *testing.T) {
	t.Parallel()
	text := pages(t)["README.md"]
	commands := regexp.MustCompile(`go run (\./[\w/-]+)`).FindAllStringSubmatch(text, -1)
	if len(commands) == 0 {
		t.Error("found no go run in the README")
	}
	for _, c := range commands {
		if _, err := os.Stat(filepath.Join(root(t), c[1], "main.go")); err != nil {
			t.Errorf("the README runs %s: %v", c[1], err)
		}
	}
}

// The page about policies has every field and every reason that a policy gives.
func TestPolicyPageIsComplete(t *testing.T) {
	t.Parallel()
	text := pages(t)["docs/reference/policy.md"]
	for field := range reflect.TypeFor[redeliver.Policy]().Fields() {
		if !strings.Contains(text, "`"+field.Name+"`") {
			t.Errorf("docs/reference/policy.md has no field %s", field.Name)
		}
	}
	for _, reason := range []redeliver.Reason{
		redeliver.ReasonExhausted, redeliver.ReasonPermanent, redeliver.ReasonTimeout, redeliver.ReasonPanic,
		redeliver.ReasonExpired, redeliver.ReasonInvalidated, redeliver.ReasonCrashed,
	} {
		if !strings.Contains(text, "`"+string(reason)+"`") {
			t.Errorf("docs/reference/policy.md does not name the reason %s", reason)
		}
	}
}

// Each promise of the README and of the page of guarantees leads to a test.
func TestPromisesLeadToTests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		page, heading string
		minRows       int
	}{
		{"README.md", "Promises", 7},
		{"docs/reference/guarantees.md", "Promises", 9},
		{"docs/reference/guarantees.md", "By broker", 12},
	} {
		if rows := proven(t, c.page, pages(t)[c.page], c.heading); rows < c.minRows {
			t.Errorf("%s, %s: read only %d rows, want at least %d", c.page, c.heading, rows, c.minRows)
		}
	}
}

// The index lists every page of docs/.
func TestTheIndexListsEveryPage(t *testing.T) {
	t.Parallel()
	all := pages(t)
	index := all["docs/README.md"]
	listed := 0
	for page := range all {
		rel, within := strings.CutPrefix(page, "docs/")
		if !within || rel == "README.md" {
			continue
		}
		listed++
		if !strings.Contains(index, "]("+rel+")") {
			t.Errorf("docs/README.md has no link to %s", rel)
		}
	}
	if listed < 30 {
		t.Errorf("read only %d pages of docs/", listed)
	}
}

// The README stays short enough to be read.
func TestReadmeHasAtMostAThousandWords(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(text))); n > 1000 {
		t.Errorf("the README has %d words, want at most 1,000; move details to a page of docs/", n)
	}
}

// Each section of the page of proofs has rows that link to tests, and each page with promises links to its section.
func TestPagesProveTheirPromises(t *testing.T) {
	t.Parallel()
	const proofs = "docs/evidence/proofs.md"
	all := pages(t)
	for _, m := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(all[proofs], -1) {
		if rows := proven(t, proofs, all[proofs], m[1]); rows == 0 {
			t.Errorf("%s has no proofs under %q", proofs, m[1])
		}
	}
	for _, page := range []string{
		"reference/command", "reference/console", "reference/dead-letters", "how-to/change-a-policy", "explanation/order",
		"reference/sidecar", "how-to/upgrade", "reference/waiting", "how-to/alerts", "reference/tracing",
	} {
		if !strings.Contains(all["docs/"+page+".md"], "(../evidence/proofs.md#") {
			t.Errorf("docs/%s.md makes promises and has no link to its proofs", page)
		}
		if !strings.Contains(all[proofs], "(../"+page+".md)") {
			t.Errorf("%s has no proofs of docs/%s.md", proofs, page)
		}
	}
}

// proven counts the rows of the tables below a heading. Each row links to a test, by its name or by its file, or to a
// measurement.
func proven(t *testing.T, page, text, heading string) (rows int) {
	t.Helper()
	_, section, _ := strings.Cut(text, "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	before := ""
	for line := range strings.Lines(section) {
		head := !strings.HasPrefix(before, "|")
		before = line
		if !strings.HasPrefix(line, "| ") || head || strings.HasPrefix(line, "| ---") || strings.HasPrefix(line, "| not promised |") {
			continue
		}
		rows++
		if !mdProof.MatchString(line) && !mdTestFile.MatchString(line) && !measuredBy.MatchString(line) {
			t.Errorf("%s: a row without a test: %.80s", page, line)
		}
	}
	return rows
}

// make test proves each promise: no promise depends on make prove alone.
func TestMakeTestProvesEveryPromise(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, page := range []string{"README.md", "docs/reference/guarantees.md"} {
		_, section, _ := strings.Cut(pages(t)[page], "\n## Promises\n")
		section, _, _ = strings.Cut(section, "\n## ")
		for line := range strings.Lines(section) {
			proofs := mdProof.FindAllStringSubmatch(line, -1)
			if !strings.HasPrefix(line, "| ") || len(proofs) == 0 {
				continue
			}
			checked++
			if !slices.ContainsFunc(proofs, func(proof []string) bool {
				source, err := os.ReadFile(filepath.Join(root(t), filepath.Dir(page), proof[2]))
				return err == nil && !strings.HasPrefix(string(source), "//go:build prove")
			}) {
				t.Errorf("%s: only make prove runs the tests of a promise: %.80s", page, line)
			}
		}
	}
	if checked < 16 {
		t.Errorf("read only %d promises", checked)
	}
}

// A page that states a measured number says how it was measured, in the same line or, in a section of such
// numbers, in that section.
func TestNumbersSayHowTheyWereMeasured(t *testing.T) {
	t.Parallel()
	numbers := 0
	for page, text := range pages(t) {
		for section := range strings.SplitSeq(text, "\n## ") {
			isMeasured := page != "README.md" && measuredBy.MatchString(section)
			for line := range strings.Lines(section) {
				if !measured.MatchString(line) {
					continue
				}
				numbers++
				if !isMeasured && !measuredBy.MatchString(line) {
					t.Errorf("%s has a number, and not how it was measured: %.120s", page, line)
				}
			}
		}
	}
	if numbers < 30 {
		t.Errorf("read only %d numbers", numbers)
	}
}
