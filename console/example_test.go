package console_test

import (
	"net/http"
	"os"

	"github.com/redeliver/redeliver/console"
	"github.com/redeliver/redeliver/deadletter"
)

// A service mounts the console beside its own pages, with its own login.
func ExampleNew() {
	var orders deadletter.Queue // as the service's adapter opens it: client.DeadLetters(...)
	mux := http.NewServeMux()
	c, err := console.New(console.Config{
		Queues: []console.Queue{{Queue: orders}},
		Auth: console.Custom(func(r *http.Request) (console.Actor, error) {
			user, ok := r.Context().Value("user").(string) // set by the service's login
			if !ok {
				return console.Actor{}, console.ErrUnknownUser
			}
			return console.Actor{Name: user, Role: console.RoleReader}, nil
		}),
		Audit: os.Stderr,
	})
	if err != nil {
		return // here always: orders is nil, and New returns that as an error
	}
	defer c.Close()
	mux.Handle("/dead-letters/", http.StripPrefix("/dead-letters", c))
	// Output:
}
