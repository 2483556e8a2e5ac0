package cli

import (
	"crypto/tls"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/credentials"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// Unencrypted passwords and world-readable files of users cause warnings.
func TestUnsafeSettingsCauseWarnings(t *testing.T) {
	t.Parallel()
	parse := func(text string) *url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	u, err := brokerurl.Parse("amqp://ann:hunter22@rabbit", brokerurl.RabbitMQ)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(plainPasswords(u, "http://ann:hunter22@rabbit:15672"), "\n")
	if !strings.Contains(all, "amqps://") || !strings.Contains(all, "https://") || strings.Contains(all, "hunter22") {
		t.Errorf("it warns: %s", all)
	}
	if all := plainPasswords(u, "https://ann:hunter22@rabbit:15672"); len(all) != 1 {
		t.Errorf("with TLS for the API it warns: %q", all)
	}
	for name, row := range map[string]struct {
		flags runFlags
		want  []string // of the one warning
	}{
		"an authorization":              {runFlags{to: parse("http://handler/a"), authorization: "Bearer hunter22"}, []string{envAuthorization, "handler", "https://"}},
		"a token in a file":             {runFlags{to: parse("http://handler/a"), bearer: &credentials.Bearer{}, authorization: "replaced"}, []string{"--bearer-file", "handler", "https://"}},
		"to this machine":               {runFlags{to: parse("http://localhost:8080/a"), authorization: "Bearer hunter22"}, nil},
		"with TLS":                      {runFlags{to: parse("https://handler/a"), authorization: "Bearer hunter22"}, nil},
		"no authorization":              {runFlags{to: parse("http://handler/a")}, nil},
		"a webhook's authorization":     {runFlags{webhook: webhookFlags{to: parse("http://chat"), authorization: "hunter22"}}, []string{envWebhookAuthorization, "chat"}},
		"a webhook's path":              {runFlags{webhook: webhookFlags{to: parse("http://chat/hunter22")}}, []string{"--on-dead-letter", "chat"}},
		"a webhook with TLS":            {runFlags{webhook: webhookFlags{to: parse("https://chat/hunter22")}}, nil},
		"a webhook without any secret":  {runFlags{webhook: webhookFlags{to: parse("http://chat/")}}, nil},
		"the password of Redis":         {runFlags{dedup: dedupFlags{redis: &redis.Options{Addr: "redis:6379", Password: "hunter22"}}}, []string{"--dedup", "redis:6379", "rediss://"}},
		"Redis with TLS":                {runFlags{dedup: dedupFlags{redis: &redis.Options{Addr: "redis:6379", Password: "hunter22", TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}}}}, nil},
		"Redis on a socket of the host": {runFlags{dedup: dedupFlags{redis: &redis.Options{Network: "unix", Addr: "/run/redis", Password: "hunter22"}}}, nil},
		"Redis without a password":      {runFlags{dedup: dedupFlags{redis: &redis.Options{Addr: "redis:6379"}}}, nil},
	} {
		got := row.flags.plainSecrets()
		text := strings.Join(got, "\n")
		if strings.Contains(text, "hunter22") || (len(got) == 0) != (row.want == nil) || len(got) > 1 {
			t.Errorf("%s: it warns %q", name, got)
		}
		for _, part := range row.want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: it warns %q, without %q", name, got, part)
			}
		}
	}
	for name, row := range map[string]struct {
		publish, token string
		want           int
	}{
		"a token that others send":   {"0.0.0.0:8082", "hunter22", 1},
		"a token of this machine":    {"127.0.0.1:8082", "hunter22", 0},
		"no token":                   {"127.0.0.1:8082", "", 0},
		"a token for nothing at all": {"", "hunter22", 0},
	} {
		all := (&processFlags{publish: row.publish, token: row.token}).plainToken()
		if text := strings.Join(all, "\n"); len(all) != row.want || strings.Contains(text, "hunter22") || row.want > 0 && !strings.Contains(text, "--publish") {
			t.Errorf("%s: it warns %q", name, all)
		}
	}
	users := filepath.Join(t.TempDir(), "users")
	for mode, want := range map[os.FileMode]int{0o644: 1, 0o640: 0, 0o600: 0} {
		if err := os.WriteFile(users, nil, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(users, mode); err != nil {
			t.Fatal(err)
		}
		if all := (&accessFlags{basic: users}).warnings(); len(all) != want {
			t.Errorf("a file of mode %o: %q", mode, all)
		}
	}
}

// The client of Redis writes to the command's log, in its format.
func TestRedisWritesToTheLog(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	redisLog{log}.Printf(t.Context(), "pool: %s", "\x1b[2Jrefused")
	if !strings.HasPrefix(out.String(), `{"time"`) || strings.Contains(out.String(), "\x1b") {
		t.Errorf("it writes %q", out.String())
	}
}
