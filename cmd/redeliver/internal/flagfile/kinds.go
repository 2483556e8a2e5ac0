package flagfile

import (
	"maps"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// kind is how the file has the values of a type of flags.
type kind struct {
	words string // what a value must be
	// read returns the texts with which to set the flag; none for a value of another kind.
	read   func(*yaml.Node) []string
	schema map[string]any
}

const (
	durationPattern = `[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)`
	oneDuration     = `^` + durationPattern + `$`
	someDurations   = `^` + durationPattern + `(,` + durationPattern + `)*$`
)

// kinds are the types of flags by their name in pflag.
var kinds = map[string]kind{
	"bool":   {"true or false", scalar("!!bool"), map[string]any{"type": "boolean"}},
	"string": {"text; put it in quotes if YAML reads it as something else", scalar("!!str"), map[string]any{"type": "string"}},
	"int":    {"a whole number", scalar("!!int"), map[string]any{"type": "integer"}},
	"int32":  {"a whole number below 2147483648", scalar("!!int"), map[string]any{"type": "integer", "minimum": -1 << 31, "maximum": 1<<31 - 1}},
	"float64": {"a number", scalar("!!float", "!!int"), map[string]any{
		"type": "number",
	}},
	"duration": {"a duration such as 90s or 2h", duration, map[string]any{
		"anyOf": []any{map[string]any{"type": "string", "pattern": oneDuration}, map[string]any{"const": 0}},
	}},
	"durationSlice": {"a list of durations, as in [10s, 1m, 1h]", list, map[string]any{
		"anyOf": []any{
			map[string]any{"type": "string", "pattern": someDurations},
			map[string]any{"type": "array", "minItems": 1, "items": map[string]any{"type": "string", "pattern": oneDuration}},
		},
	}},
	"stringArray": {"text, or a list of texts", list, map[string]any{
		"anyOf": []any{map[string]any{"type": "string"}, listSchema},
	}},
}

var listSchema = map[string]any{"type": "array", "minItems": 1, "items": map[string]any{"type": "string"}}

// scalar returns a reader of single values with these tags.
func scalar(tags ...string) func(*yaml.Node) []string {
	return func(node *yaml.Node) []string {
		for _, tag := range tags {
			if node.Kind == yaml.ScalarNode && node.Tag == tag {
				return []string{plain(node)}
			}
		}
		return nil
	}
}

// plain returns the text of a value as a flag has it: YAML also writes numbers and booleans in other ways.
func plain(node *yaml.Node) string {
	var number int64
	var yes bool
	switch {
	case node.Tag == "!!int" && node.Decode(&number) == nil:
		return strconv.FormatInt(number, 10)
	case node.Tag == "!!bool" && node.Decode(&yes) == nil:
		return strconv.FormatBool(yes)
	default:
		return node.Value
	}
}

func duration(node *yaml.Node) []string {
	if node.Kind == yaml.ScalarNode && (node.Tag == "!!str" || node.Tag == "!!int" && node.Value == "0") {
		return []string{node.Value}
	}
	return nil
}

// list reads a text, or a list of texts.
func list(node *yaml.Node) []string {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!str" {
		return []string{node.Value}
	}
	return texts(node)
}

// texts returns the texts of a list; none if it has anything else.
func texts(node *yaml.Node) (all []string) {
	if node.Kind != yaml.SequenceNode {
		return nil
	}
	for _, item := range node.Content {
		if item = resolved(item); item.Kind != yaml.ScalarNode || item.Tag != "!!str" {
			return nil
		}
		all = append(all, item.Value)
	}
	return all
}

// Schema returns the JSON Schema of the file.
func Schema(title string, spec Spec) map[string]any {
	section := map[string]any{"type": "object", "additionalProperties": false, "properties": properties(spec.Section(), spec.Command)}
	top := properties(spec.Process, spec.Command)
	top[keyDefaults] = map[string]any{"description": "For all subscriptions that do not say otherwise", "$ref": "#/$defs/subscription"}
	top[keySections] = map[string]any{
		"description": "The topics and queues to consume", "type": "array", "minItems": 1, "items": map[string]any{"$ref": "#/$defs/subscription"},
	}
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title,
		"type": "object", "additionalProperties": false, "required": []any{keySections}, "properties": top,
		"$defs": map[string]any{"subscription": section},
	}
}

func properties(flags *pflag.FlagSet, command string) map[string]any {
	all := make(map[string]any)
	flags.VisitAll(func(f *pflag.Flag) {
		own := map[string]any{}
		of := kinds[f.Value.Type()].schema
		if f.Name == command {
			of = listSchema
		}
		maps.Copy(own, of)
		_, usage := pflag.UnquoteUsage(f)
		own["description"] = strings.ReplaceAll(usage, "--", "")
		all[f.Name] = own
	})
	return all
}
