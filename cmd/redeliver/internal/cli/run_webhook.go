package cli

import (
	"cmp"
	"errors"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/sidecar"
)

// Where the URL of a webhook is taken from when no flag has it (its path is often a secret,
// and arguments are seen by everybody on the host), and the value of its Authorization.
const (
	envWebhook              = "REDELIVER_ON_DEAD_LETTER"
	envWebhookAuthorization = "REDELIVER_ON_DEAD_LETTER_AUTHORIZATION"
)

// webhookFlags say who is told of dead letters.
type webhookFlags struct {
	url           string
	to            *url.URL // nil for nobody
	authorization string
}

func (f *webhookFlags) flags(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "on-dead-letter", "", "`URL` that is posted what was dead-lettered and why, as JSON (default "+envWebhook+", else none)")
}

// check reads who is told.
func (f *webhookFlags) check(env func(string) string, bad func(string, ...any)) {
	given, name := cmp.Or(f.url, env(envWebhook)), "--on-dead-letter"
	if f.url == "" {
		name = envWebhook
	}
	if given == "" {
		return
	}
	u, err := url.Parse(given)
	if err == nil {
		err = sidecar.CheckWebhook(u)
	} else {
		err = errors.New("must be http://host:port/path, or https") // not what url.Parse repeats
	}
	if err != nil {
		bad("%s %w", name, err) // without what was given: it is a secret, perhaps
		return
	}
	if f.authorization, err = sidecar.CheckAuthorization(env(envWebhookAuthorization)); err != nil {
		bad(envWebhookAuthorization+" %w", err)
	}
	f.to = u
}

func (f *webhookFlags) open(c *sidecar.Config) *sidecar.Webhook {
	return sidecar.NewWebhook(sidecar.WebhookConfig{URL: f.to, Authorization: f.authorization, Broker: string(c.Broker.Broker), Log: c.Log})
}

// name is who is told, as it is printed.
func (f *webhookFlags) name() string {
	if f.to == nil {
		return ""
	}
	return redeliver.Redact(sidecar.WebhookName(f.to))
}
