package brokerurl

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// clientParameters are the parameters that amqp091-go reads from a URL, see
// https://www.rabbitmq.com/docs/uri-query-parameters.
var clientParameters = []string{"cacertfile", "certfile", "keyfile", "server_name_indication", "auth_mechanism", "heartbeat"}

// readRabbitMQ parses what follows the hosts of amqp:// and amqps://.
func (u *URL) readRabbitMQ(path string, values url.Values) error {
	name := strings.TrimPrefix(path, "/")
	if strings.Contains(name, "/") {
		return errors.New("the virtual host must be one name: write / as %2F")
	}
	vhost, err := url.PathUnescape(name)
	if err != nil {
		return errors.New("the virtual host uses percent-encoding: write % as %25")
	}
	// An empty name is RabbitMQ's default, as in all its clients.
	if u.VHost = vhost; vhost == "" {
		u.VHost = "/"
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(clientParameters, name) {
			return fmt.Errorf("unknown parameter %q: must be one of %s", name, strings.Join(clientParameters, ", "))
		}
		u.Client = values
	}
	if beat := values.Get("heartbeat"); values.Has("heartbeat") {
		if _, err := strconv.ParseUint(beat, 10, 16); err != nil {
			return fmt.Errorf("heartbeat is %q: must be whole seconds, at most 65535", beat)
		}
	}
	return nil
}

// AMQP returns the URLs for RabbitMQ's client, one for each host.
func (u URL) AMQP() []string {
	all := make([]string, len(u.Hosts))
	for i, host := range u.Hosts {
		one := url.URL{
			Scheme: "amqp", Host: host, RawQuery: u.Client.Encode(),
			Path: "/" + u.VHost, RawPath: "/" + url.PathEscape(u.VHost),
		}
		if u.TLS {
			one.Scheme = "amqps"
		}
		if u.User != "" {
			one.User = url.UserPassword(u.User, u.Password)
		}
		all[i] = one.String()
	}
	return all
}
