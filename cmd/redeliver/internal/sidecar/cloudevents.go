package sidecar

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// eventPrefixes are the prefixes of attributes in a message's headers, in the CloudEvents bindings of Kafka and AMQP.
var eventPrefixes = []string{"ce_", "ce-", "cloudevents_", "cloudevents:"}

// eventHeader is [requestHeader] for an event in the binary mode of CloudEvents' HTTP binding. A message that is
// already an event keeps its attributes. A message with the whole event in its body is sent unchanged.
func eventHeader(m *Message, eventType string) http.Header {
	h := newHeaderBuilder(m)
	own := m.Headers
	if !strings.HasPrefix(strings.ToLower(m.contentType()), "application/cloudevents") {
		own = h.event(m, eventType)
	}
	return h.end(m, own)
}

// event sets the attributes and returns the message's headers that are not attributes.
func (h *headerBuilder) event(m *Message, eventType string) (rest []Header) {
	own := make(map[string]string)
	for _, header := range m.Headers {
		name := attribute(header.Name)
		if name == "" || !utf8.ValidString(header.Value) {
			rest = append(rest, header)
			continue
		}
		own["Ce-"+name] = escape(header.Value) // the last counts, as in Kafka's headers
	}
	type field struct{ name, value string }
	wanted := [...]field{
		{"Ce-specversion", "1.0"}, {"Ce-id", m.State.ID}, {"Ce-source", "/" + url.PathEscape(m.State.Origin)}, {"Ce-type", eventType}, {"Ce-time", stamp(m.Timestamp)},
	}
	for _, a := range wanted { // before own, which takes the remaining space
		if _, ok := own[a.name]; !ok && a.value != "" {
			h.setAlways(a.name, escape(a.value))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		h.add(name, own[name])
	}
	for _, a := range wanted { // without id or type it would not be an event
		if _, ok := h.header[a.name]; !ok && a.value != "" {
			h.setAlways(a.name, escape(a.value))
		}
	}
	if _, ok := own["Ce-partitionkey"]; !ok && m.Key != nil && utf8.Valid(m.Key) {
		// A key that does not fit is only in Redeliver-Key.
		if key := escape(string(m.Key)); len(key) <= maxKey && h.left.reserve(length("Ce-partitionkey", key)) {
			h.set("Ce-partitionkey", key)
		}
	}
	return rest
}

// attribute returns the name of the event's attribute in a header, or "". It omits datacontenttype, which is the
// Content-Type.
func attribute(header string) string {
	header = strings.ToLower(header)
	for _, p := range eventPrefixes {
		name, ok := strings.CutPrefix(header, p)
		if !ok || name == "" || name == "datacontenttype" {
			continue
		}
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return ""
		}
		return name
	}
	return ""
}
