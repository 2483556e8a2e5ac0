package cli

import (
	"cmp"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/sidecar"
)

// The environment variables with the URL of the webhook and its Authorization header. The path is often a secret, and
// every user of the host can see arguments.
const (
	envWebhook              = "REDELIVER_ON_DEAD_LETTER"
	envWebhookAuthorization = "REDELIVER_ON_DEAD_LETTER_AUTHORIZATION"
)

// webhookFlags are the flags of the webhook that receives reports of dead letters.
type webhookFlags struct {
	url           string
	to            *url.URL // nil for no webhook
	authorization string
}

func (f *webhookFlags) flags(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "on-dead-letter", "", "Report each dead letter as a JSON POST to this `URL` (default $"+envWebhook+", or off)")
}

// check checks the flags and parses the URL.
func (f *webhookFlags) check(env func(string) string, bad func(string, ...any)) {
	given, name := cmp.Or(f.url, env(envWebhook)), "--on-dead-letter"
	if f.url == "" {
		name = envWebhook
	}
	if given == "" {
		return
	}
	var err error
	if f.to, err = sidecar.ParseURL(given, envWebhookAuthorization); err != nil {
		bad("%s %w", name, err) // without the value, which may be a secret
		return
	}
	if f.authorization, err = sidecar.CheckAuthorization(env(envWebhookAuthorization)); err != nil {
		bad(envWebhookAuthorization+" %w", err)
	}
}

func (f *webhookFlags) open(c *sidecar.Config) *sidecar.Webhook {
	return sidecar.NewWebhook(sidecar.WebhookConfig{URL: f.to, Authorization: f.authorization, Broker: string(c.Broker.Broker), Log: c.Log})
}

// name returns the URL as run prints it.
func (f *webhookFlags) name() string {
	if f.to == nil {
		return ""
	}
	return redeliver.Redact(sidecar.WebhookName(f.to))
}
