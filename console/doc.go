// Package console is a web console for dead-letter queues. It shows their messages by cause, and replays, edits and
// deletes them. It is an [net/http.Handler] that any Go service can mount under any prefix:
//
//	c, err := console.New(console.Config{Queues: []console.Queue{{Queue: dlq}}, Auth: console.Basic(users...)})
//	defer c.Close()
//	mux.Handle("/dead-letters/", http.StripPrefix("/dead-letters", c))
//
// It can also run its own server, with [Console.ListenAndServe].
//
// # Guarantees
//
//   - Every page and every action works without JavaScript. The only script keeps a page up to date, and can be
//     paused.
//   - The service, below all pages, is the only code that checks roles and the read-only switch, redacts, and writes
//     the audit log. In doubt it refuses: if a [Redactor] fails, its part is hidden, and if the log cannot be written,
//     nothing is done and no payload is shown.
//   - All text from messages is treated as hostile. Only html/template writes it, invisible characters are made
//     visible, and no page has an inline script or style: the Content-Security-Policy forbids them.
//   - Nothing is public by default. Without [Config.Auth] the console serves only requests from this machine, and
//     none that came through a proxy.
//   - The numbers on the home page are counted in the background, and the page shows their age. A DLQ in which reading
//     has an effect is read only on request.
//   - A replay or a purge runs in this process. When the process ends, the task is paused, and any console or command
//     can resume it.
package console
