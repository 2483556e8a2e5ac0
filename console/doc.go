// Package console is a web console for dead-letter queues. It shows their messages by
// cause, and replays, edits and deletes them. It is an [net/http.Handler] that any Go
// service mounts, under any prefix:
//
//	c, err := console.New(console.Config{Queues: []console.Queue{{Queue: dlq}}, Auth: console.Basic(users...)})
//	defer c.Close()
//	mux.Handle("/dead-letters/", http.StripPrefix("/dead-letters", c))
//
// or a server of its own, [Console.ListenAndServe].
//
// # Guarantees
//
//   - Every page and every action works without JavaScript. The one script only
//     keeps a page up to date, and can be paused.
//   - The desk, below all pages, is the only place that checks roles and the
//     read-only switch, redacts, and writes the audit log. In doubt it refuses: a
//     [Redactor] that fails hides its part, and if the log cannot be written, nothing is
//     done and no payload is shown.
//   - Everything from the wire is hostile text. It is written by html/template
//     alone, characters that cannot be seen are made visible, and no page has an
//     inline script or style: the Content-Security-Policy forbids them.
//   - Nothing is public by accident. Without [Config.Auth] only requests from this
//     machine are served, and none that came through a proxy.
//   - The numbers on the home page were counted in the background, and the page shows their age. A DLQ in which reading changes a counter is read only on request.
//   - A replay or a purge runs in this process. When that ends the task is paused,
//     and any console or command goes on with it.
package console
