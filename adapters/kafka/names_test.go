package kafka_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redeliver/redeliver/adapters/kafka"
)

const topicBytes = "abcxyzABCXYZ0159._-"

func legal(name string) bool {
	return len(name) > 0 && len(name) <= 249 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

// Groups that look like escapes could collide.
var group = rapid.OneOf(
	rapid.StringOfN(rapid.RuneFrom([]rune("_ae0259f.-Z")), 1, 12, -1),
	rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 20), func(b []byte) string { return string(b) }),
)

func TestGroupsCanBeReadBackFromNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := group.Draw(t, "group")
		name := kafka.EscapeGroupName(g)
		if back := kafka.UnescapeGroupName(name); back != g {
			t.Fatalf("%q is written %q and read back as %q", g, name, back)
		}
		if !legal(name) || strings.Contains(name, ".") {
			t.Fatalf("%q is written %q, which is illegal in a topic's name", g, name)
		}
	})
}

func TestSubscriptionsNeverShareATopic(t *testing.T) {
	topic := rapid.StringOfN(rapid.RuneFrom([]rune(topicBytes)), 1, 240, -1)
	level := rapid.SampledFrom([]time.Duration{0, time.Second, 90 * time.Second, 1500 * time.Millisecond, time.Hour, 8784 * time.Hour, 8783*time.Hour + 59*time.Minute + 59999*time.Millisecond})
	name := func(topic, group string, level time.Duration) string {
		if level == 0 {
			return kafka.Base(topic, group) + ".retry"
		}
		return kafka.DelayTopicName(topic, group, level)
	}
	rapid.Check(t, func(t *rapid.T) {
		t1, g1, l1 := topic.Draw(t, "topic"), group.Draw(t, "group"), level.Draw(t, "level")
		a := name(t1, g1, l1)
		if !legal(a) {
			t.Fatalf("%q is not the name of a topic", a)
		}
		if l1 > 0 {
			if got, ok := kafka.LevelOf(t1, g1, a); !ok || got != l1 {
				t.Fatalf("%s is read back from %s as %s, %t", l1, a, got, ok)
			}
		}
		// The same bytes divided differently are the likeliest to collide.
		all := t1 + "." + g1
		cut := rapid.IntRange(1, len(all)-1).Draw(t, "cut")
		t2, g2 := all[:cut], strings.TrimPrefix(all[cut:], ".")
		if rapid.Bool().Draw(t, "other") || g2 == "" {
			t2, g2 = t1, group.Draw(t, "group 2")
		}
		if strings.Trim(t2, topicBytes) != "" || t1 == t2 && g1 == g2 {
			t.Skip("the same, or no topic")
		}
		if b := name(t2, g2, level.Draw(t, "level 2")); a == b {
			t.Fatalf("%q of %q and %q of %q share %s", t1, g1, t2, g2, a)
		}
	})
}

func TestLongNamesAreCutAndHashed(t *testing.T) {
	seen := make(map[string]string)
	for n := 1; n <= 255; n++ {
		for _, g := range []string{strings.Repeat("g", n), strings.Repeat("g", n-1) + "h", strings.Repeat(".", n)} {
			name := kafka.Base("orders", g)
			if len(name) > kafka.LongestBase || !legal(name) {
				t.Fatalf("%d bytes: %s", len(name), name)
			}
			if other, ok := seen[name]; ok && other != g {
				t.Fatalf("%q and %q share %s", g, other, name)
			}
			seen[name] = g
		}
	}
	if got := kafka.Base("orders", "billing.eu"); got != "orders.billing_2eeu" {
		t.Errorf("%s is written for billing.eu", got)
	}
	longest := kafka.Base(strings.Repeat("t", 249), strings.Repeat("g", 255))
	if len(longest) != kafka.LongestBase {
		t.Errorf("%d bytes of %d are used", len(longest), kafka.LongestBase)
	}
}
