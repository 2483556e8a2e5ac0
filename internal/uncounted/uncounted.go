// Package uncounted turns the counting of crashes off, for the benchmark that measures what
// it costs. No policy can: a message that kills its process would kill the next one for ever.
package uncounted

import "context"

type key struct{}

// With has subscriptions that begin under the context count no crashes. Of the adapters,
// Kafka's heeds it.
func With(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Is tells whether crashes are not to be counted.
func Is(ctx context.Context) bool { return ctx.Value(key{}) != nil }
