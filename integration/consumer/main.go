package consumer

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/middleware"
)

// Main is called at the beginning of TestMain. If the variable env is set, this process is a consumer: Main calls
// consume and does not return. The context ends at SIGTERM.
func Main[Config any](env string, consume func(context.Context, Config) error) {
	text := os.Getenv(env)
	if text == "" {
		return
	}
	if err := run(env, text, consume); err != nil {
		Logf("%v", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run[Config any](env, text string, consume func(context.Context, Config) error) error {
	var cfg Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return fmt.Errorf("reading %s: %w", env, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return consume(ctx, cfg)
}

// ReadCommands calls execute with each line that the parent sends, and gone when the parent has ended. If execute
// returns an error, the process exits with status 2.
func ReadCommands(execute func(line string) error, gone func()) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if err := execute(in.Text()); err != nil {
			Logf("%v", err)
			os.Exit(2)
		}
	}
	gone()
}

// Logger logs warnings and errors to stderr.
func Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// Route handles a topic's messages behind middleware.Retry and the given middlewares until ctx ends.
func Route(ctx context.Context, topic string, sub message.Subscriber, h message.NoPublishHandlerFunc, besides ...message.HandlerMiddleware) error {
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NewSlogLogger(Logger()))
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Retry())
	router.AddMiddleware(besides...)
	router.AddConsumerHandler("consumer", topic, sub, h)
	return router.Run(ctx)
}

// Logf writes a line to the process's log, with the time.
func Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05.000 ")+format+"\n", args...)
}
