package sqs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// keyServer is a server that answers every request to SQS with an error, grants a role, and records the key of each
// request.
type keyServer struct {
	mu    sync.Mutex
	keys  []string // of requests to SQS: key id, region and session token
	roles []string // requested roles, each with the key of the request
}

func (s *keyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, credential, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	scope := strings.Split(credential, "/") // key, day, region, service
	if len(scope) < 4 {
		scope = make([]string, 4)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.Contains(string(body), "Action=AssumeRole") {
		s.roles = append(s.roles, scope[0])
		fmt.Fprintf(w, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
			<AccessKeyId>ROLEKEY</AccessKeyId><SecretAccessKey>s3cr3tk3y</SecretAccessKey><SessionToken>t0k3n</SessionToken><Expiration>%s</Expiration>
			</Credentials></AssumeRoleResult></AssumeRoleResponse>`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		return
	}
	s.keys = append(s.keys, strings.Join([]string{scope[0], scope[2], r.Header.Get("X-Amz-Security-Token")}, " "))
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, `{"__type":"com.amazonaws.sqs#AccessDeniedException","message":"injected by the test"}`)
}

// Without a configuration of redeliver, the profile, the role that it names, the region and SQS's endpoint come from
// the same places as in every AWS program.
func TestOpenUsesTheDefaultAWSConfiguration(t *testing.T) {
	server := &keyServer{}
	web := httptest.NewServer(server)
	defer web.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_ENDPOINT_URL_SQS", web.URL)
	t.Setenv("AWS_ENDPOINT_URL_STS", web.URL)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", write("credentials", "[plain]\naws_access_key_id = PLAINKEY\naws_secret_access_key = s3cr3tk3y\n"))
	t.Setenv("AWS_CONFIG_FILE", write("config", "[profile plain]\nregion = eu-west-2\n\n"+
		"[profile role]\nregion = eu-north-1\nrole_arn = arn:aws:iam::1:role/billing\nsource_profile = plain\n"))
	for _, c := range []struct{ profile, key, role string }{
		{"plain", "PLAINKEY eu-west-2 ", ""},
		{"role", "ROLEKEY eu-north-1 t0k3n", "PLAINKEY"},
		{"", "ENVKEY eu-west-3 ", ""},
	} {
		t.Run(c.profile, func(t *testing.T) {
			if c.profile != "" {
				t.Setenv("AWS_PROFILE", c.profile)
			} else {
				t.Setenv("AWS_ACCESS_KEY_ID", "ENVKEY")
				t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cr3tk3y")
				t.Setenv("AWS_REGION", "eu-west-3")
			}
			server.keys, server.roles = nil, nil
			client, err := Open(t.Context(), Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close(context.Background())
			_, err = client.Plan(t.Context(), "orders")
			if err == nil || !strings.Contains(err.Error(), "AccessDenied") {
				t.Errorf("planned: %v", err)
			}
			wantNoSecrets(t, fmt.Sprint(err, errors.Unwrap(err)))
			server.mu.Lock()
			defer server.mu.Unlock()
			if len(server.keys) == 0 || server.keys[0] != c.key {
				t.Errorf("requests with %q, want %q", server.keys, c.key)
			}
			if got := strings.Join(server.roles, ""); got != c.role {
				t.Errorf("a role was requested with %q, want %q", got, c.role)
			}
		})
	}
}
