package cli

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/twmb/avro"
)

// A body of few bytes can have a schema that makes much of each: an array of nulls has no bytes for its items, and a record
// of a thousand nulls in an array becomes a thousand names. checkAvro refuses schemas that make too much.
const (
	maxPerByte  = 256 // bytes of memory or JSON that a repeated value may become, for each of its own bytes
	avroValue   = 8   // what a value becomes at least
	avroName    = 16  // what a field or a list becomes, besides its name and its values
	maxNameSize = 256 // bytes of the name of a field or of a value of an enumeration, in Protobuf
)

// avroCost is what the shortest value of a schema has and becomes.
type avroCost struct{ bytes, becomes int }

// checkAvro returns why bodies with a schema are not decoded, or nil.
func checkAvro(schema *avro.Schema) error {
	w := avroWalk{known: make(map[string]avroCost)}
	_, err := w.cost(schema.Canonical())
	return err
}

type avroWalk struct {
	known map[string]avroCost // of named types; while one is measured, a reference to it counts little
}

// repeated returns an error if a schema makes too much of a value that a body may have many times.
func (c avroCost) repeated(what string) error {
	if c.becomes > maxPerByte*c.bytes {
		return fmt.Errorf("it is not decoded, because %s may take %d bytes and become %d", what, c.bytes, c.becomes)
	}
	return nil
}

// cost measures a schema in canonical form, where every name is full.
func (w avroWalk) cost(text json.RawMessage) (c avroCost, err error) {
	var name string
	if json.Unmarshal(text, &name) == nil {
		return w.named(name)
	}
	var branches []json.RawMessage
	if json.Unmarshal(text, &branches) == nil {
		return w.union(branches)
	}
	var s struct {
		Type   string `json:"type"`
		Name   string `json:"name"`
		Fields []struct {
			Name string          `json:"name"`
			Type json.RawMessage `json:"type"`
		} `json:"fields"`
		Items   json.RawMessage `json:"items"`
		Values  json.RawMessage `json:"values"`
		Symbols []string        `json:"symbols"`
		Size    int             `json:"size"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return c, err
	}
	switch s.Type {
	case "array", "map":
		items := s.Items
		if s.Type == "map" {
			items = s.Values
		}
		one, err := w.cost(items)
		if s.Type == "map" { // an item also has a key, of at least a byte
			one.bytes, one.becomes = one.bytes+1, one.becomes+avroName
		}
		if err == nil {
			err = one.repeated("an item of the " + s.Type)
		}
		return avroCost{1, avroName}, err
	case "fixed":
		c = avroCost{s.Size, avroValue + s.Size}
	case "enum":
		c = avroCost{1, avroValue}
		for _, symbol := range s.Symbols {
			c.becomes = max(c.becomes, avroValue+len(symbol))
		}
	case "record":
		w.known[s.Name], c.becomes = avroCost{1, avroValue}, avroValue
		for _, f := range s.Fields {
			one, err := w.cost(f.Type)
			if err != nil {
				return c, err
			}
			c.bytes, c.becomes = c.bytes+one.bytes, c.becomes+one.becomes+avroName+len(f.Name)
		}
		if c.bytes > 0 { // one without bytes does not contain itself
			err = c.repeated("a record " + s.Name)
		}
	default:
		return w.named(s.Type)
	}
	w.known[s.Name] = c
	return c, err
}

// named measures a type that has a name.
func (w avroWalk) named(name string) (avroCost, error) {
	switch name {
	case "null":
		return avroCost{0, avroValue}, nil
	case "boolean", "int", "long", "string", "bytes":
		return avroCost{1, avroValue}, nil
	case "float":
		return avroCost{4, avroValue}, nil
	case "double":
		return avroCost{8, avroValue}, nil
	}
	c, ok := w.known[name]
	if !ok {
		return c, fmt.Errorf("the schema has no type %q", name)
	}
	return c, nil
}

// union measures a union: the index of a branch has a byte, and the worst branch counts.
func (w avroWalk) union(branches []json.RawMessage) (worst avroCost, err error) {
	if len(branches) == 0 {
		return worst, errors.New("a union has no branch")
	}
	for i, b := range branches {
		one, err := w.cost(b)
		if err != nil {
			return worst, err
		}
		one.bytes++
		if i == 0 || one.becomes*worst.bytes > worst.becomes*one.bytes {
			worst = one
		}
	}
	return worst, nil
}
