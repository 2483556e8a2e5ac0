//go:build prove

package worlds_test

import "testing"

// Ten minutes of new worlds break no promise.
func TestTenMinutesOfWorlds(t *testing.T) {
	if failed, output := search(t, "kafka", "-for", "10m"); failed {
		t.Error(output)
	}
}
