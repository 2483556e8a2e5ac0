package arch

import (
	"regexp"
	"strings"
	"testing"
)

func TestMarkdownIsPlainEnglish(t *testing.T) {
	t.Parallel()
	read := 0
	for page, text := range pages(t) {
		if !written(page) {
			continue
		}
		read++
		for _, habit := range badHabits(text) {
			t.Errorf("%s: %s", page, habit)
		}
	}
	if read < 40 {
		t.Errorf("read only %d pages", read)
	}
}

var (
	// Phrases that a native speaker would not write, with what to write instead.
	badPhrases = map[*regexp.Regexp]string{
		regexp.MustCompile(`(?i)\b(is|are|was|were) told\b`):    `log or report it, or give the reader the subject`,
		regexp.MustCompile(`(?i)\btells? (whether|if)\b`):       `"reports whether"`,
		regexp.MustCompile(`(?i)\bmend(s|ed|ing)?\b`):           `"fix"`,
		regexp.MustCompile(`(?i)\bby itself\b`):                 `"automatically", "alone" or nothing`,
		regexp.MustCompile(`(?i)\b(stands|stood|lies)\b`):       `"is"`,
		regexp.MustCompile(`(?i)\bwho(m)?ever\b`):               `"anyone who", or the role`,
		regexp.MustCompile(`(?i)\bfor ever\b`):                  `"forever"`,
		regexp.MustCompile(`(?i)\bas ever\b`):                   `"unchanged"`,
		regexp.MustCompile(`(?i)\btold again\b`):                `"repeat"`,
		regexp.MustCompile(`(?i)\bfor who (knows|reads|has)\b`): `"for users of"`,
		regexp.MustCompile(`(?i)\b(what|which) is dead\b`):      `"dead letters" or "DLQ messages"`,
	}
	// A sentence that begins with Who or What, at the start of a text or after another sentence.
	clauseAsSubject = regexp.MustCompile(`(?:^|[.!?:] )((?:Who|What)(?:ever)? [^.!?]*(?:[.!?]|$))`)
	listMark        = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) `)
	strongMark      = strings.NewReplacer("**", "", "_", "")
)

// plain matches phrases with such a word that are correct: "told to", "told apart", "stands for", "stands still".
var plain = regexp.MustCompile(`(?i)\b(told\s+(to|apart)|(stands|stood)\s+(in\s+)?(for|still|where))\b`)

// badHabits returns the passages of a page or of a comment that are not plain English. Headings may begin with What.
func badHabits(text string) (all []string) {
	for _, block := range blocks(plain.ReplaceAllString(mdCode.ReplaceAllString(text, "x"), "x")) {
		for phrase, better := range badPhrases {
			if found := phrase.FindString(block); found != "" {
				all = append(all, "write "+better+" instead of \""+found+"\": "+block)
			}
		}
		for _, m := range clauseAsSubject.FindAllStringSubmatch(block, -1) {
			if !strings.HasSuffix(m[1], "?") {
				all = append(all, "a sentence begins with a clause as its subject: "+m[1])
			}
		}
	}
	return all
}

// blocks returns the paragraphs, list items and table cells of a page, each on one line.
func blocks(text string) (all []string) {
	paragraph := ""
	end := func() {
		if paragraph != "" {
			all, paragraph = append(all, strongMark.Replace(paragraph)), ""
		}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "", strings.HasPrefix(trimmed, "#"):
			end()
		case strings.HasPrefix(trimmed, "|"):
			end()
			for cell := range strings.SplitSeq(strings.Trim(trimmed, "|"), "|") {
				all = append(all, strongMark.Replace(strings.TrimSpace(cell)))
			}
		case listMark.MatchString(line):
			end()
			paragraph = listMark.ReplaceAllString(line, "")
		default:
			paragraph = strings.TrimSpace(paragraph + " " + trimmed)
		}
	}
	end()
	return all
}

func TestBadHabitsAreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"The sink is told of it.":                                   1,
		"It tells\nwhether a file is there, and they mend it.":      2,
		"- What is not acked comes back.":                           1,
		"| a | Who uses one adapter compiles one client. |":         1,
		"It ends. **Whoever** asks is denied.":                      2,
		"A header stands there for ever, and ends by itself.":       3,
		"ElasticMQ stands for SQS, and the clock stood\nstill.":     0,
		"What does it cost? Who pays? See below.":                   0,
		"## What is promised\n\nIt recommends `what is told` only.": 0,
		"Nobody says what is acked.":                                0,
	} {
		if got := badHabits(text); len(got) != want {
			t.Errorf("%q has the habits %q, want %d", text, got, want)
		}
	}
}
