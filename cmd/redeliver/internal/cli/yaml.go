package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// toYAML converts JSON to YAML with the fields in the same order, so that both have one schema. It does not parse the
// text as YAML, although JSON is YAML, because the text may contain characters that YAML allows only escaped.
func toYAML(text []byte) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	node, err := yamlNode(dec)
	if err != nil {
		return "", fmt.Errorf("writing as YAML: %w", err)
	}
	var b strings.Builder
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(node), enc.Close()); err != nil {
		return "", fmt.Errorf("writing as YAML: %w", err)
	}
	return b.String(), nil
}

// yamlNode reads the next value. It returns nil at the end of an array or object.
func yamlNode(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		switch v {
		case '{':
			node.Kind = yaml.MappingNode
		case ']', '}':
			return nil, nil
		}
		for {
			child, err := yamlNode(dec)
			if err != nil {
				return nil, err
			}
			if child == nil {
				return node, nil
			}
			node.Content = append(node.Content, child)
		}
	case string:
		node := &yaml.Node{}
		node.SetString(v)
		if strings.IndexFunc(v, hidden) >= 0 {
			node.Style = yaml.DoubleQuotedStyle // a block scalar would contain the characters unescaped
		}
		return node, nil
	case json.Number:
		// No tag: a number that is too large for a YAML integer would be tagged as one and could not be parsed.
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}, nil
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	}
}
