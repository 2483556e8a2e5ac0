// Package brokerurl parses the address of a broker, which has the same form for all programs of redeliver: one URL
// whose scheme names the broker.
//
//	kafka://host:9092[,host2:9092]
//	kafka://user:password@host:9092?sasl=scram-sha-512
//	kafka+tls://user:password@host:9093?sasl=plain
//	kafka+share://host:9092, kafka+share+tls://host:9093
//	amqp://user:password@host[:5672][,host2[:5672]][/vhost]
//	amqps://user:password@host[:5671][/vhost][?cacertfile=ca.pem]
//	sqs://region
//	sqs+http://host:9324
//
// Special characters in a user, a password or a virtual host are percent-encoded: %40 for @, %2F for /.
package brokerurl

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Env is the environment variable that replaces --broker.
const Env = "REDELIVER_BROKER"

// Broker is a kind of broker.
type Broker string

// The brokers that have URLs.
const (
	Kafka      Broker = "kafka"
	KafkaShare Broker = "kafka+share" // Kafka, whose groups are share groups
	RabbitMQ   Broker = "rabbitmq"
	SQS        Broker = "sqs"
)

// HasGroups reports whether topics are read by groups that have names.
func (b Broker) HasGroups() bool { return b == Kafka || b == KafkaShare }

// URL is the address of a broker.
type URL struct {
	Broker         Broker
	Hosts          []string // each is host:port; none for sqs://
	TLS            bool
	User, Password string     // RabbitMQ's clients use guest if empty; for sqs+http:// the access key
	SASL           string     // for Kafka, one of the names in kafka.go; empty for none
	VHost          string     // for RabbitMQ, "/" by default
	Client         url.Values // for RabbitMQ: parameters that its client reads
	Region         string     // for sqs://
	StateKeys      [][]byte   // for RabbitMQ and SQS; never part of a URL, the command's flag sets them
	MaxBatch       int32      // for Kafka, in bytes: see MaxDecompressedBatch; 0 for the default
}

// scheme describes the part of a URL before "://".
type scheme struct {
	name    string
	broker  Broker
	tls     bool
	port    string // the default port; empty if the URL must have one
	example string
}

// userHint describes how a URL of the scheme names a user.
func (s scheme) userHint() string {
	if s.name == "sqs" {
		return "sqs:// takes its credentials from the AWS configuration"
	}
	return "write user@ before the host"
}

// The examples have no user, because programs redact the users of URLs in errors.
var schemes = []scheme{
	{"kafka", Kafka, false, "", "kafka://host:9092"},
	{"kafka+tls", Kafka, true, "", "kafka+tls://host:9093"},
	{"kafka+share", KafkaShare, false, "", "kafka+share://host:9092"},
	{"kafka+share+tls", KafkaShare, true, "", "kafka+share+tls://host:9093"},
	{"amqp", RabbitMQ, false, "5672", "amqp://host:5672/vhost"},
	{"amqps", RabbitMQ, true, "5671", "amqps://host:5671/vhost"},
	{"sqs", SQS, true, "", "sqs://eu-central-1"},
	{"sqs+http", SQS, false, "", "sqs+http://host:9324"},
}

var (
	// schemeOf maps a port to the probable scheme of an address without one; the default is the first known.
	schemeOf  = map[string]string{"5672": "amqp", "5671": "amqps", "9324": "sqs+http", "4566": "sqs+http"}
	awsRegion = regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-[0-9]$`)
	// harmlessURL matches one host with or without a port, or several with ports.
	harmlessURL = regexp.MustCompile(`^([a-z+]+://)?([a-zA-Z0-9._-]+|([a-zA-Z0-9._-]+|\[[0-9a-fA-F:]+\]):[0-9]{1,5}(,([a-zA-Z0-9._-]+|\[[0-9a-fA-F:]+\]):[0-9]{1,5})*)/?$`)
)

// Shown returns raw if an error may repeat it, or "" if a part of it may be a password.
func Shown(raw string) string {
	if harmlessURL.MatchString(raw) {
		return raw
	}
	return ""
}

// formOf describes how to write an address that has no scheme.
func formOf(raw string, known []scheme, brokers []Broker) string {
	if strings.Contains(raw, "@") {
		return "add the scheme before the user, for example " + known[0].name + "://"
	}
	guess := known[0].name
	if s, ok := schemeOf[raw[strings.LastIndex(raw, ":")+1:]]; ok {
		guess = s
	} else if awsRegion.MatchString(raw) {
		guess = "sqs"
	}
	if url := guess + "://" + raw; Shown(raw) != "" {
		if _, err := Parse(url, brokers...); err == nil {
			return "add the scheme, for example " + url
		}
	}
	return "add the scheme: " + list(known, " or ", func(s scheme) string { return s.example })
}

// String returns the URL without user, path and parameters.
func (u URL) String() string {
	for _, s := range schemes {
		if s.broker == u.Broker && s.tls == u.TLS {
			return s.name + "://" + cmp.Or(u.Region, strings.Join(u.Hosts, ","))
		}
	}
	return ""
}

// Parse parses the address of one of these brokers. Its errors never contain a password, or anything that may be one in
// a malformed URL.
//
// Parse does not use url.Parse, which accepts no list of hosts and repeats the whole URL in its errors.
func Parse(raw string, brokers ...Broker) (URL, error) { return ParseWith(raw, "", brokers...) }

// ParseWith is Parse for a URL with a user and without a password. The password comes from elsewhere, such as a file or
// the environment. An empty password means none.
func ParseWith(raw, password string, brokers ...Broker) (URL, error) {
	known := slices.DeleteFunc(slices.Clone(schemes), func(s scheme) bool { return !slices.Contains(brokers, s.broker) })
	name, rest, ok := strings.Cut(raw, "://")
	if !ok || strings.ContainsAny(name, ":@/") {
		return URL{}, errors.New(formOf(raw, known, brokers))
	}
	at := slices.IndexFunc(known, func(s scheme) bool { return s.name == name })
	if at < 0 {
		return URL{}, fmt.Errorf("unknown scheme %s://: must be one of %s", name, list(known, ", ", func(s scheme) string { return s.name + "://" }))
	}
	s := known[at]
	u := URL{Broker: s.broker, TLS: s.tls, Password: password}
	end := strings.IndexAny(rest+"/", "/?#")
	authority, rest := rest[:end], rest[end:]
	if strings.ContainsAny(rest, "@#") {
		return URL{}, errors.New("the part after the hosts must not contain @ or #: in a user or password write / as %2F, ? as %3F and # as %23")
	}
	path, query, _ := strings.Cut(rest, "?")
	var err error
	if s.name == "sqs" {
		err = u.readRegion(authority)
	} else {
		err = u.readHosts(s, authority)
	}
	if err != nil {
		return URL{}, err
	}
	if password != "" && u.User == "" {
		return URL{}, errors.New("a password is given, but the URL has no user: " + s.userHint())
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return URL{}, errors.New("the parameters after ? are malformed")
	}
	switch s.broker {
	case RabbitMQ:
		err = u.readRabbitMQ(path, values)
	case SQS:
		err = u.readSQS(s, path, values)
	default:
		err = u.readKafka(path, values)
	}
	if err != nil {
		return URL{}, err
	}
	return u, nil
}

// readHosts parses "user:password@host,host2".
func (u *URL) readHosts(s scheme, authority string) error {
	hosts, err := u.readUser(authority)
	if err != nil {
		return err
	}
	for i, text := range strings.Split(hosts, ",") {
		host, ok := hostPort(text, s.port)
		switch {
		case ok:
			u.Hosts = append(u.Hosts, host)
		case u.User != "":
			return fmt.Errorf("address %d after the @ must be host:port, as in %s", i+1, s.example)
		case i > 0:
			return fmt.Errorf("address %d must be host:port, as in %s", i+1, s.example)
		default:
			// Without "@host" the text may be user:password, and a password begins after the first colon.
			name, _, _ := strings.Cut(text, ":")
			return fmt.Errorf("the address that begins with %q must be host:port, as in %s", name, s.example)
		}
	}
	return nil
}

// readUser parses "user:password@hosts" and returns the hosts.
func (u *URL) readUser(authority string) (hosts string, err error) {
	at := strings.LastIndex(authority, "@")
	if at < 0 {
		return authority, nil
	}
	user, text, _ := strings.Cut(authority[:at], ":")
	var err1, err2 error
	u.User, err1 = url.PathUnescape(user)
	password, err2 := url.PathUnescape(text)
	switch {
	case err1 != nil || err2 != nil:
		return "", errors.New("user and password use percent-encoding: write % as %25") // no value in the error
	case password != "" && u.Password != "":
		return "", errors.New("the URL has a password, and another one is given: omit one")
	}
	u.Password = cmp.Or(password, u.Password)
	if u.User == "" || u.Password == "" {
		return "", errors.New("authentication needs a user and a password: write user:password@ before the host")
	}
	return authority[at+1:], nil
}

// hostPort adds the port to a host that has none, and reports whether they are valid.
func hostPort(host, port string) (string, bool) {
	if _, _, err := net.SplitHostPort(host); err != nil && port != "" {
		host += ":" + port
	}
	name, port, err := net.SplitHostPort(host)
	n, perr := strconv.Atoi(port)
	return host, err == nil && name != "" && perr == nil && n >= 1 && n <= 65535
}

func list(known []scheme, lastSeparator string, text func(scheme) string) string {
	all := make([]string, len(known))
	for i, s := range known {
		all[i] = text(s)
	}
	last := len(all) - 1
	if last < 1 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:last], ", ") + lastSeparator + all[last]
}
