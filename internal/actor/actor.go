// Package actor names the person who changes something at a broker. A caller that knows the person puts the name into the context;
// otherwise it is the user and host of the process.
package actor

import (
	"context"
	"os"
	"os/user"
)

type key struct{}

// With returns a context with a name. An empty name changes nothing.
func With(ctx context.Context, name string) context.Context {
	if name == "" {
		return ctx
	}
	return context.WithValue(ctx, key{}, name)
}

// Of returns the name in a context, or user@host.
func Of(ctx context.Context) string {
	if name, ok := ctx.Value(key{}).(string); ok {
		return name
	}
	return UserAtHost()
}

// UserAtHost returns who runs this process, as operators see it.
func UserAtHost() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
