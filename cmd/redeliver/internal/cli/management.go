package cli

import (
	"cmp"
	"net/url"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// managementURL is where RabbitMQ's management API is; empty where nobody says. Its user
// is the broker's, where it names none. What it returns in errors has no password in it.
func (c *connection) managementURL(env func(string) string, u brokerurl.URL) (string, error) {
	if u.Broker != brokerurl.RabbitMQ {
		if c.management != "" {
			return "", usagef("--management-url is of RabbitMQ alone, and the broker is %s; leave it out", called(u.Broker))
		}
		return "", nil
	}
	raw := cmp.Or(c.management, env(envManagement), c.readAPI)
	if raw == "" {
		return "", nil
	}
	api, err := url.Parse(raw)
	if err != nil || api.Host == "" || api.Scheme != "http" && api.Scheme != "https" {
		return "", usagef("--management-url is %q: must be http://host:15672, or https", redeliver.RedactAddress(raw))
	}
	name := api.User.Username()
	_, has := api.User.Password()
	switch {
	case has:
	case name == "" || name == u.User:
		api.User = url.UserPassword(cmp.Or(u.User, "guest"), cmp.Or(u.Password, "guest"))
	default:
		return "", usagef("--management-url has the user %q and no password, and the broker's user is another: leave the user out, or give both", name)
	}
	return api.String(), nil
}

// listable refuses to list the DLQs of a broker that has to be asked elsewhere for them.
func (a *app) listable() error {
	u, err := a.conn.url(a.Env)
	if err != nil {
		return err
	}
	api, err := a.conn.managementURL(a.Env, u)
	if err == nil && api == "" && u.Broker == brokerurl.RabbitMQ {
		err = usagef("AMQP cannot list queues, RabbitMQ's management API can: give --management-url http://host:15672, or name a DLQ")
	}
	return err
}
