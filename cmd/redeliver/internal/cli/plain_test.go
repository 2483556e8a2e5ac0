package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/internal/brokerurl"
)

// Unencrypted passwords and world-readable files of users cause warnings.
func TestUnsafeSettingsCauseWarnings(t *testing.T) {
	t.Parallel()
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
