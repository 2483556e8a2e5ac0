// Package brokerurl reads the address of a broker, as all programs of redeliver
// take it: one URL whose scheme names the broker.
//
//	kafka://host:9092[,host2:9092]
//	kafka://user:password@host:9092?sasl=scram-sha-512
//	kafka+tls://user:password@host:9093?sasl=plain
//
// What is special in a user or a password is written in percent: %40 for @.
package brokerurl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Env is the environment variable that stands in for --broker.
const Env = "REDELIVER_BROKER"

// The ways to authenticate at a Kafka, as the parameter sasl names them.
const (
	Plain       = "plain"
	ScramSHA256 = "scram-sha-256"
	ScramSHA512 = "scram-sha-512"
)

// URL is the address of a broker.
type URL struct {
	Hosts          []string // each host:port
	TLS            bool
	User, Password string
	SASL           string // one of the names above; empty for none
}

// Parse reads an address. Its errors never repeat a password.
//
// It does not use url.Parse: that takes no list of hosts.
func Parse(raw string) (URL, error) {
	var u URL
	scheme, rest, ok := strings.Cut(raw, "://")
	switch {
	case raw == "":
		return URL{}, errors.New("no broker is named: give kafka://host:9092")
	case !ok:
		return URL{}, errors.New("a broker is named by a URL: kafka://host:9092")
	case scheme == "kafka":
	case scheme == "kafka+tls":
		u.TLS = true
	default:
		return URL{}, fmt.Errorf("%s:// is not known here: there are kafka:// and kafka+tls://", scheme)
	}
	rest, query, _ := strings.Cut(rest, "?")
	if err := u.readUser(&rest); err != nil {
		return URL{}, err
	}
	if rest = strings.TrimSuffix(rest, "/"); strings.ContainsAny(rest, "/#") {
		return URL{}, errors.New("there is nothing but hosts between kafka:// and the parameters: no path, no fragment; in a user or a password write / as %2F, # as %23, ? as %3F")
	}
	for host := range strings.SplitSeq(rest, ",") {
		if err := checkHost(host); err != nil {
			return URL{}, err
		}
		u.Hosts = append(u.Hosts, host)
	}
	return u, u.readQuery(query)
}

// readUser takes "user:password@" off rest.
func (u *URL) readUser(rest *string) error {
	at := strings.LastIndex(*rest, "@")
	if at < 0 {
		return nil
	}
	user, password, _ := strings.Cut((*rest)[:at], ":")
	*rest = (*rest)[at+1:]
	var err1, err2 error
	u.User, err1 = url.PathUnescape(user)
	u.Password, err2 = url.PathUnescape(password)
	if err1 != nil || err2 != nil {
		return errors.New("user and password are written in percent: % itself is %25") // not what they are
	}
	if u.User == "" || u.Password == "" {
		return errors.New("authentication needs a user and a password: kafka+tls://user:password@host:9093")
	}
	u.SASL = Plain
	return nil
}

func checkHost(host string) error {
	name, port, err := net.SplitHostPort(host)
	if n, perr := strconv.Atoi(port); err != nil || name == "" || perr != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q is no host:port", host)
	}
	return nil
}

func (u *URL) readQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("the parameters behind ? cannot be read")
	}
	for name, value := range values {
		known := []string{Plain, ScramSHA256, ScramSHA512}
		switch {
		case name != "sasl":
			return fmt.Errorf("there is no parameter %q: there is sasl", name)
		case u.User == "":
			return errors.New("sasl needs a user and a password: kafka+tls://user:password@host:9093?sasl=plain")
		case len(value) != 1 || !slices.Contains(known, value[0]):
			return fmt.Errorf("sasl is %q: it must be one of %s", strings.Join(value, ", "), strings.Join(known, ", "))
		}
		u.SASL = value[0]
	}
	return nil
}
