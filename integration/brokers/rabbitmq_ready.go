package brokers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// rabbitIsWhole also requires a leader for every quorum queue, because a node that comes back answers before the
// elections.
func rabbitIsWhole(
	ctx context.Context, url, management string, ctl func(ctx context.Context, args ...string) (string, error),
) error {
	if err := rabbitAnswers(ctx, url, management); err != nil {
		return err
	}
	out, err := ctl(ctx, "eval", leaderless)
	if err != nil {
		return fmt.Errorf("asking rabbitmq for its quorum queues' leaders: %w; it said: %s", err, out)
	}
	if out = strings.TrimSpace(out); out != "[]" {
		return fmt.Errorf("these quorum queues have no leader: %s; one that was declared in the second before a kill "+
			"is lost and never gets one, so call Settle after declaring", out)
	}
	return nil
}

// leaderless waits one second for the elections, which take half of that, and then returns the queues without a leader.
// It reads a table and sends no request to the queues.
const leaderless = `
Leaderless = fun() -> [element(1, E) || E <- ets:tab2list(ra_state), element(2, E) =/= leader] end,
Wait = fun Wait(0) -> Leaderless();
           Wait(N) -> case Leaderless() of [] -> []; _ -> timer:sleep(50), Wait(N - 1) end
       end,
Wait(20).`

// rabbitAnswers opens a connection and a channel, as every client does first, and asks the management plugin, if there
// is one, for the current user. It uses none of the code under test.
func rabbitAnswers(ctx context.Context, url, management string) error {
	conn, err := amqp091.DialConfig(url, amqp091.Config{
		Heartbeat: 10 * time.Second,
		Dial: func(network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			if deadline, ok := ctx.Deadline(); ok { // the client removes it when the connection is open
				err = conn.SetDeadline(deadline)
			}
			return conn, err
		},
	})
	if err != nil {
		return fmt.Errorf("connecting to rabbitmq: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Channel(); err != nil {
		return fmt.Errorf("opening a channel to rabbitmq: %w", err)
	}
	if management == "" {
		return nil
	}
	return managementAnswers(ctx, management)
}

func managementAnswers(ctx context.Context, management string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, management+"/api/whoami", http.NoBody)
	if err != nil {
		return fmt.Errorf("asking rabbitmq's management: %w", err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("asking rabbitmq's management: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New("rabbitmq's management answers " + resp.Status)
	}
	return nil
}
