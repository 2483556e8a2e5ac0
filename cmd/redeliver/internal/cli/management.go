package cli

import (
	"cmp"
	"net/url"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// managementURL returns the URL of RabbitMQ's management API, or "". A URL without a user gets the broker's user.
// Errors contain no password.
func (c *connection) managementURL(env func(string) string, u brokerurl.URL) (string, error) {
	if u.Broker != brokerurl.RabbitMQ {
		if c.management != "" {
			return "", usagef("--management-url is for RabbitMQ, and the broker is %s; omit it", displayName(u.Broker))
		}
		return "", nil
	}
	raw := cmp.Or(c.management, env(envManagement), c.loadedAPI)
	if raw == "" {
		return "", nil
	}
	api, err := url.Parse(raw)
	if err != nil || api.Host == "" || api.Scheme != "http" && api.Scheme != "https" {
		return "", usagef("--management-url is %q: must be http://host:15672 or https://host:15671", redeliver.RedactAddress(raw))
	}
	name := api.User.Username()
	_, has := api.User.Password()
	switch {
	case has:
	case name == "" || name == u.User:
		api.User = url.UserPassword(cmp.Or(u.User, "guest"), cmp.Or(u.Password, "guest"))
	default:
		return "", usagef("--management-url has the user %q without a password, and the broker has another user: omit the user, or give both", name)
	}
	return api.String(), nil
}

// listable returns an error if the broker cannot list DLQs. It opens nothing.
func (a *app) listable() error {
	u, err := a.conn.url(a.Env)
	if err != nil {
		return err
	}
	api, err := a.conn.managementURL(a.Env, u)
	if err == nil && api == "" && u.Broker == brokerurl.RabbitMQ {
		err = errUnlisted
	}
	return err
}
