//go:build prove

package amqp_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/integration/brokers"
)

const (
	tokenSecret = "not a secret, for a node on loopback"
	tokenLife   = 8 * time.Second
)

// enableOAuth makes a node accept tokens that are signed with tokenSecret, beside passwords.
const enableOAuth = `[code:add_pathz(Dir) || Dir <- filelib:wildcard(filename:join([filename:dirname(code:lib_dir(rabbit)), "*", "ebin"]))],
{ok, _} = application:ensure_all_started(rabbitmq_auth_backend_oauth2),
Key = #{<<"kty">> => <<"oct">>, <<"alg">> => <<"HS256">>, <<"k">> => <<"%s">>},
application:set_env(rabbitmq_auth_backend_oauth2, resource_server_id, <<"rabbitmq">>),
application:set_env(rabbitmq_auth_backend_oauth2, key_config, [{signing_keys, #{<<"k">> => {map, Key}}}, {default_key, <<"k">>}]),
application:set_env(rabbit, auth_backends, [rabbit_auth_backend_internal, rabbit_auth_backend_oauth2]).`

// tokenLogin logs in with a new token each time, as an Authentication that asks an identity provider does.
type tokenLogin struct{ logins *atomic.Int64 }

func (tokenLogin) Mechanism() string { return "PLAIN" }

func (l tokenLogin) Response() string {
	l.logins.Add(1)
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(map[string]string{"alg": "HS256", "typ": "JWT", "kid": "k"}) + "." + part(map[string]any{
		"sub": "service", "aud": []string{"rabbitmq"}, "exp": time.Now().Add(tokenLife).Unix(),
		"scope": []string{"rabbitmq.configure:*/*", "rabbitmq.read:*/*", "rabbitmq.write:*/*"},
	})
	h := hmac.New(sha256.New, []byte(tokenSecret))
	h.Write([]byte(text))
	return "\x00service\x00" + text + "." + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// RabbitMQ denies everything on a connection whose token has expired, and leaves it open. The subscription once kept it, so
// that no retry and no dead letter was written any more.
func TestATokenThatExpires(t *testing.T) {
	r := brokers.OwnRabbitMQ(t, brokers.RabbitMQOptions{Brief: true})
	if out, err := r.Eval(t.Context(), fmt.Sprintf(enableOAuth, base64.RawURLEncoding.EncodeToString([]byte(tokenSecret)))); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var logins atomic.Int64
	l := newFixture(t, r, func(l *fixture) { l.cfg.AMQP.SASL = []amqp091.Authentication{tokenLogin{&logins}} })
	l.consume(func(*message.Message, run) error { return errHandler })
	l.awaitChange("consuming", 1)
	expired := time.NewTimer(tokenLife + 2*time.Second)
	defer expired.Stop()
	l.publishMessages("before")
	l.awaitEnds([]string{"before"})
	<-expired.C
	first := logins.Load()
	l.publishMessages("after-1", "after-2", "after-3")
	l.awaitEnds([]string{"after-1", "after-2", "after-3"})
	if err := l.client.Publisher().Publish(l.queue, message.NewMessage("by the client", nil)); err != nil {
		t.Error(err)
	}
	l.awaitEnds([]string{"by the client"})
	if n := logins.Load() - first; n == 0 || n > 20 {
		t.Errorf("%d logins after the first token had expired", n)
	}
}
