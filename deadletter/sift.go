package deadletter

import "context"

// Sifter is a [Scan] that need not make a message of what nobody wants. Where a filter
// takes one message in a hundred, the copies of the others are most of the work. No Scan
// has to be one: [Sift] looks through any.
type Sifter interface {
	Scan
	// Sift is Next for who may not want the message: it returns nil where want says
	// false. The message that want is given, and the bytes that it points to, are there
	// only until want returns; its strings may be kept, and so may all of the message that
	// Sift returns. want is called once, unless there is an error.
	Sift(ctx context.Context, want func(*Message) bool) (*Message, error)
}

// Sift looks at the next message of a scan, and returns it if want takes it; nil without
// an error if not. Errors are those of [Scan]'s Next. What want may keep stands at
// [Sifter].
func Sift(ctx context.Context, scan Scan, want func(*Message) bool) (*Message, error) {
	if s, ok := scan.(Sifter); ok {
		return s.Sift(ctx, want)
	}
	m, err := scan.Next(ctx)
	if err != nil || !want(m) {
		return nil, err
	}
	return m, nil
}
