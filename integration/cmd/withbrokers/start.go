package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"

	"github.com/redeliver/redeliver/integration/brokers"
)

// running is a broker that was started, with the variables that give its address to the command.
type running struct {
	*brokers.Broker
	env []string
}

// starts returns one function for each requested broker.
func (r request) starts(ctx context.Context) []func() (running, error) {
	var starts []func() (running, error)
	if r.kafka {
		starts = append(starts, func() (running, error) {
			b, err := brokers.Kafka(ctx, r.kafkaOptions)
			if err != nil {
				return running{}, err
			}
			return running{b, []string{brokers.EnvKafka + "=" + strings.Join(b.Addrs(), ",")}}, nil
		})
	}
	for _, version := range r.rabbits {
		starts = append(starts, func() (running, error) {
			o := r.rabbitOptions
			o.Version = version
			b, err := brokers.RabbitMQ(ctx, o)
			if err != nil {
				return running{}, err
			}
			return running{b.Broker, b.Environ()}, nil
		})
	}
	if r.sqs {
		starts = append(starts, func() (running, error) {
			s, err := brokers.SQS(ctx, r.sqsOptions)
			if err != nil {
				return running{}, err
			}
			return running{s.Broker, []string{brokers.EnvSQS + "=" + s.URL()}}, nil
		})
	}
	if r.moto {
		starts = append(starts, func() (running, error) {
			s, err := brokers.Moto(ctx, brokers.MotoOptions{})
			if err != nil {
				return running{}, err
			}
			return running{s.Broker, []string{brokers.EnvMoto + "=" + s.URL()}}, nil
		})
	}
	if r.redis {
		starts = append(starts, func() (running, error) {
			b, err := brokers.Redis(ctx, brokers.RedisOptions{})
			if err != nil {
				return running{}, err
			}
			return running{b, []string{brokers.EnvRedis + "=" + b.Addrs()[0]}}, nil
		})
	}
	if r.rocketMQ {
		starts = append(starts, func() (running, error) {
			b, err := brokers.RocketMQ(ctx, r.rocketMQOptions)
			if err != nil {
				return running{}, err
			}
			return running{b, []string{brokers.EnvRocketMQ + "=" + b.Addrs()[0]}}, nil
		})
	}
	return starts
}

// start starts all brokers at the same time. It returns all of them or none: if one cannot be started, or at a signal,
// it stops the others.
func start(ctx context.Context, cancel context.CancelCauseFunc, signals <-chan os.Signal, r request) ([]running, error) {
	type result struct {
		running
		err error
	}
	starts := r.starts(ctx)
	results := make(chan result)
	for _, one := range starts {
		go func() {
			b, err := one()
			results <- result{b, err}
		}()
	}
	var started []running
	for waiting := len(starts); waiting > 0; {
		select {
		case s := <-signals:
			cancel(fmt.Errorf("%s before the brokers were up", s))
		case one := <-results:
			waiting--
			if one.err != nil {
				cancel(one.err) // the first cause counts; later errors are its consequences
			} else {
				started = append(started, one.running)
			}
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		_ = stop(started)
		return nil, cause
	}
	return started, nil
}

// stop stops all brokers at the same time, and reports their CPU time, which is hard to see otherwise.
func stop(started []running) error {
	errs := make([]error, len(started))
	var all sync.WaitGroup
	for i, b := range started {
		all.Go(func() { errs[i] = b.Stop() })
	}
	all.Wait()
	for _, b := range started {
		if cpu := b.CPU(); cpu > 0 {
			log.Printf("%s took %.1f CPU seconds", b, cpu.Seconds())
		}
	}
	return errors.Join(errs...)
}
