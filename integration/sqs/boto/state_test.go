//go:build prove

package boto_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
)

// stateAttribute is redeliver's attribute.
const stateAttribute = "redeliver"

// state removes redeliver's attribute from a dead letter as its documentation describes: a JSON object of the
// headers' names without their prefix. It restores the user's attributes for which there was no room.
func state(t *testing.T, m *wire) map[string]string {
	t.Helper()
	ours := make(map[string]string)
	a, ok := m.Attributes[stateAttribute]
	if !ok {
		return ours
	}
	delete(m.Attributes, stateAttribute)
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(a.Value), &fields); err != nil || a.Type != "String" {
		t.Fatalf("our attribute is a %s, %q: %v", a.Type, a.Value, err)
	}
	var inside []struct {
		Name  string `json:"name"`
		Type  string `json:"type"`
		Value string `json:"value"`
	}
	if list, ok := fields["attributes"]; ok {
		delete(fields, "attributes")
		if err := json.Unmarshal(list, &inside); err != nil {
			t.Fatalf("the attributes inside redeliver's are %s: %v", list, err)
		}
	}
	if len(inside) > 0 && len(m.Attributes) < 9 && inside[0].Name != stateAttribute {
		t.Errorf("%d attributes are visible and %d inside redeliver's, although nine have room", len(m.Attributes), len(inside))
	}
	for _, i := range inside {
		raw, err := base64.StdEncoding.DecodeString(i.Value)
		if err != nil {
			t.Fatalf("the attribute %s inside redeliver's is not base64: %v", i.Name, err)
		}
		m.Attributes[i.Name] = attribute{i.Type, string(raw)}
		if strings.HasPrefix(i.Type, "Binary") {
			m.Attributes[i.Name] = attribute{i.Type, hex.EncodeToString(raw)}
		}
	}
	for name, raw := range fields {
		var v string
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Errorf("our field %s is %s, no text", name, raw)
		}
		ours[redeliver.HeaderPrefix+name] = v
	}
	return ours
}
