package wire

import amqp091 "github.com/rabbitmq/amqp091-go"

// fieldBytes is the memory of a header beside its name and value: a place in a map, a text, and a value behind an interface.
const fieldBytes = 128

// MemoryOf returns about how many bytes of memory a delivery takes. A header of three bytes takes more than a hundred, so the
// bytes of bodies alone bound nothing. HeaderFilter has bounded the number and the depth of the headers.
func MemoryOf(d *amqp091.Delivery) int { return len(d.Body) + valueSize(d.Headers) }

func valueSize(v any) (n int) {
	switch v := v.(type) {
	case amqp091.Table:
		for name, value := range v {
			n += fieldBytes + len(name) + valueSize(value)
		}
	case []any:
		for _, value := range v {
			n += fieldBytes + valueSize(value)
		}
	case string:
		n = len(v)
	case []byte:
		n = len(v)
	}
	return n
}
