package brokerurl

import (
	"net"
	"net/netip"
	"slices"
)

// PlainPassword reports whether the connection sends a password in plain text to another machine. SCRAM and AWS
// signatures do not send the password.
func (u URL) PlainPassword() bool {
	if u.TLS || u.Password == "" || u.Broker == SQS || u.SASL != "" && u.SASL != Plain {
		return false
	}
	return slices.ContainsFunc(u.Hosts, func(host string) bool { return !Loopback(host) })
}

// Loopback reports whether a host, with or without a port, is this machine.
func Loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	at, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && at.IsLoopback()
}
