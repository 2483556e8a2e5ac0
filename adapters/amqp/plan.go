package amqp

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

func argsText(args amqp.Table) string {
	parts := make([]string, 0, len(args))
	for _, k := range slices.Sorted(maps.Keys(args)) {
		parts = append(parts, fmt.Sprintf("%s=%v", k, args[k]))
	}
	return strings.Join(parts, ", ")
}
