package adaptertest

import (
	"strings"
	"testing"
)

const sample = "Words before.\n\n" +
	"| Guarantee | Kafka | RabbitMQ |\n" +
	"| --- | --- | --- |\n" +
	"| `OrderFirstAttempts`: in order | yes | no: a queue has no keys ([queues](https://docs/queues)) |\n" +
	"| `BinaryHeaders` | yes | yes |\n" +
	"| `DuplicateHeaders` | yes, in order | no: a table ([tables](https://docs/t)) |\n" +
	"| `NullBody` | yes | no: ([bodies](https://docs/b)) |\n" +
	"| `CountsCrashes` | no: not yet ([issue](https://docs/i)) | yes |\n" +
	"| `ForeignHeaders` | yes | no ([tables](https://docs/t)) |\n" +
	"| `KeepsAttempts` | yes | yes |\n" +
	"| `KeepsAttemptsInPlace` | yes | no: ([counts](https://docs/c)) |\n" +
	"| `DelayedPublish` | yes | yes |\n" +
	"| `MessageTimes` | yes | yes |\n" +
	"| `NoHeadOfLineBlocking` | yes | yes |\n" +
	"| `OrderBlocking` | yes | yes |\n" +
	"| `OrderThroughRetries` | yes | yes |\n" +
	"| `GroupPause` | yes | yes |\n" +
	"| `NewPause` | yes | yes |\n" +
	"| `ManyGroups` | yes | yes |\n" +
	"\n| `NoRow` | is of another table | |\n"

func TestCheckTable(t *testing.T) {
	kafka := Features{OrderFirstAttempts: true, BinaryHeaders: true, DuplicateHeaders: true, NullBody: true, ForeignHeaders: true, ManyGroups: true, Refuse: true, KeepsAttempts: true, KeepsAttemptsInPlace: true, DelayedPublish: true, MessageTimes: true, NoHeadOfLineBlocking: true, OrderBlocking: true, OrderThroughRetries: true, GroupPause: true, NewPause: true}
	rabbit := Features{BinaryHeaders: true, CountsCrashes: true, ManyGroups: true, KeepsAttempts: true, DelayedPublish: true, MessageTimes: true, NoHeadOfLineBlocking: true, OrderBlocking: true, OrderThroughRetries: true, GroupPause: true, NewPause: true}
	without := func(f Features, change func(*Features)) Features { change(&f); return f }
	for name, c := range map[string]struct {
		text, column string
		f            Features
		want         string // in the only problem, or empty for none
	}{
		"Kafka":          {sample, "Kafka", kafka, ""},
		"RabbitMQ":       {sample, "RabbitMQ", rabbit, ""},
		"no such column": {sample, "SQS", rabbit, "SQS"},
		"no table":       {"| Other | Kafka |\n| --- | --- |\n", "Kafka", kafka, "no table"},
		"claims more":    {sample, "RabbitMQ", without(rabbit, func(f *Features) { f.NullBody = true }), "NullBody: the harness of RabbitMQ claims true, the table says no"},
		"claims less":    {sample, "Kafka", without(kafka, func(f *Features) { f.ManyGroups = false }), "ManyGroups: the harness of Kafka claims false, the table says yes"},
		"no link":        {strings.Replace(sample, "not yet ([issue](https://docs/i))", "not yet", 1), "Kafka", kafka, "CountsCrashes: the no of Kafka has no link"},
		"no answer":      {strings.Replace(sample, "yes, in order", "in order", 1), "Kafka", kafka, "begins with neither yes nor no"},
		"not a word":     {strings.Replace(sample, "yes, in order", "yesterday", 1), "Kafka", kafka, "begins with neither yes nor no"},
		"no row":         {strings.Replace(sample, "| `ManyGroups` | yes | yes |\n", "", 1), "Kafka", kafka, "ManyGroups has no row"},
		"two rows":       {strings.Replace(sample, "`ManyGroups` | yes | yes |\n", "`ManyGroups` | yes | yes |\n| `ManyGroups` | yes | yes |\n", 1), "Kafka", kafka, "two rows"},
		"an unknown row": {strings.Replace(sample, "| `ManyGroups`", "| `Speed` | yes | yes |\n| `ManyGroups`", 1), "Kafka", kafka, "Speed"},
		"a short row":    {strings.Replace(sample, "| `ManyGroups` | yes | yes |", "| `ManyGroups` | yes |", 1), "RabbitMQ", rabbit, "no cell for RabbitMQ"},
	} {
		t.Run(name, func(t *testing.T) {
			problems := tableProblems(c.text, c.column, c.f)
			if c.want == "" && len(problems) == 0 {
				return
			}
			if c.want == "" || len(problems) != 1 || !strings.Contains(problems[0], c.want) {
				t.Errorf("problems %q, want %q in the only one", problems, c.want)
			}
		})
	}
}

// Every promise that needs a feature names one, and names are unique.
func TestPromisesNameFeatures(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range tests() {
		for name := range strings.FieldsSeq(c.needs) {
			_ = Features{}.has(name) // panics for an unknown feature
		}
		if seen[c.name] || c.body == nil {
			t.Errorf("%s occurs twice, or has no body", c.name)
		}
		seen[c.name] = true
	}
}
