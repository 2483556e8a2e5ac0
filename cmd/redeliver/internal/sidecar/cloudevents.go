package sidecar

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"
)

// eventPrefixes are how CloudEvents' bindings of the brokers write an attribute in a
// message's headers: Kafka's, and AMQP's two.
var eventPrefixes = []string{"ce_", "ce-", "cloudevents_", "cloudevents:"}

// asEvent makes a request an event, in the binary mode of CloudEvents' HTTP binding. A
// message that is one already keeps its attributes, and one that has all of its event
// in its body goes as it is.
func asEvent(header http.Header, m *Message, eventType string) {
	if strings.HasPrefix(strings.ToLower(m.contentType()), "application/cloudevents") {
		return
	}
	left := budget{bytes: mostHeaderBytes, fields: mostHeaders}
	for _, h := range m.Headers {
		name := attribute(h.Name)
		value := escape(h.Value)
		if name == "" || !utf8.ValidString(h.Value) || !left.take(len(name)+len(value)+len("ce-: \r\n")) {
			continue
		}
		delete(header, ownField(h.Name))
		header["Ce-"+name] = []string{value} // the last counts, as in Kafka's headers
	}
	set := func(name, value string) {
		if _, ok := header["Ce-"+name]; !ok && value != "" {
			header["Ce-"+name] = []string{escape(value)}
		}
	}
	set("specversion", "1.0")
	set("id", m.State.ID)
	set("source", "/"+url.PathEscape(m.State.Origin))
	set("type", eventType)
	set("time", stamp(m.Timestamp))
	if m.Key != nil && len(m.Key) <= mostKey && utf8.Valid(m.Key) {
		set("partitionkey", string(m.Key))
	}
}

// attribute is the name of the event's attribute that stands in a header; empty for a
// header that is none. datacontenttype is the Content-Type.
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
