// Package uncounted turns the counting of crashes off, for the benchmark that measures what
// it costs. No policy can: a message that kills its process would kill the next one for ever.
package uncounted

import "context"

type key struct{}

// With turns the count off for subscriptions that begin under the context. Only adapters/kafka
// asks it.
func With(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Is reports whether crashes are not counted.
func Is(ctx context.Context) bool { return ctx.Value(key{}) != nil }
