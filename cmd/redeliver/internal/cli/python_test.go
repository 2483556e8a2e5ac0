package cli_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// freeAddress returns an address at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// The shop of docs/tutorials/python.md: two topics with two policies, a batch, a delayed publish to a shell script, and a replay.
func TestThePythonShop(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	root := filepath.Join("..", "..", "..", "..")
	for _, name := range []string{"shop.py", "remind.sh"} {
		text, err := os.ReadFile(filepath.Join(root, "examples", "python", name))
		if err != nil || strings.Count(string(text), "\n") > 60 {
			t.Errorf("%s has more than 60 lines, or %v", name, err)
		}
	}
	s := newTestKafka(t)
	s.topics("clicks", "reminders")
	shop, publish := freeAddress(t), freeAddress(t)
	text, err := os.ReadFile(filepath.Join(root, "examples", "python", "subscriptions.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ours := strings.NewReplacer("127.0.0.1:8080", shop, "127.0.0.1:8081", "127.0.0.1:0", "127.0.0.1:8082", publish, "kafka://localhost:9092", s.url, "examples/", root+"/examples/")
	reminders := filepath.Join(t.TempDir(), "reminders")
	t.Setenv("REMINDERS", reminders) // for the script
	serve := func(env ...string) (out *buffer, end func()) {
		_, port, _ := strings.Cut(shop, ":")
		cmd := exec.Command(python, filepath.Join(root, "examples", "python", "shop.py"), port, "http://"+publish)
		out = &buffer{}
		cmd.Stdout, cmd.Stderr, cmd.Env = out, out, append(os.Environ(), env...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return out, func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	out, end := serve()
	h := s.start(nil, "run", "--file", write(t, ours.Replace(string(text))))
	s.put(&kgo.Record{Topic: "orders", Value: []byte(`{"number": 1, "card": "4111"}`)}, &kgo.Record{Topic: "orders", Value: []byte(`{"number": 2}`)},
		&kgo.Record{Topic: "clicks", Value: []byte("/a")}, &kgo.Record{Topic: "clicks", Value: []byte("nothing")}, &kgo.Record{Topic: "clicks", Value: []byte("/b")})
	reminded := func() string {
		text, _ := os.ReadFile(reminders)
		return string(text)
	}
	s.await("the order, the clicks and the reminder are handled", func() bool {
		said := out.String()
		return strings.Contains(said, "order 1, attempt") && strings.Contains(said, "click /a") && strings.Contains(said, "click /b") && strings.Contains(reminded(), `"number": 1`)
	})
	if got := s.records("clicks.shop.dlq", 1)[0]; string(got.Value) != "nothing" {
		t.Errorf("in the DLQ of clicks is %q", got.Value)
	}
	s.records("orders.shop.dlq", 1)
	end()
	out, end = serve("INVOICE=yes")
	defer end()
	s.run("dlq", "replay", "orders.shop.dlq", "--note", "orders without a card get an invoice", "--yes").want(t, 0)
	s.await("the replayed order is handled", func() bool {
		return strings.Contains(out.String(), "order 2, attempt") && strings.Contains(reminded(), `"number": 2`)
	})
	h.stop().want(t, 0)
}
