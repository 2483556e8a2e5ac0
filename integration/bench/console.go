package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/console"
	"github.com/redeliver/redeliver/mq"
)

// consoleJob serves the web console of spec.Topics until a request to stop.
const consoleJob job = "console"

// consoleQueues is the number of DLQs that the console of consoleRow shows.
const consoleQueues = 10

// consoleGroup is the group of all dead letters.
const consoleGroup = "billing"

// consoleRow requests the home page of a console with ten DLQs: at once, while it reads them in the background,
// and when it has read them.
func consoleRow(ctx context.Context, e *experiment) (err error) {
	n := e.scaled(100_000)
	e.notef("the page with its style, script and icon, as they are sent; peak is VmHWM of the console's whole life, in which it reads all DLQs once and, counted again, for a minute more")
	var made []names
	defer func() {
		for _, t := range made {
			err = errors.Join(err, e.cluster.drop(context.WithoutCancel(ctx), t))
		}
	}()
	var topics []string
	for range consoleQueues {
		t, err := e.cluster.fresh(ctx, e.row.name)
		if err != nil {
			return err
		}
		made, topics = append(made, t), append(topics, t.topic)
		sp := e.spec(ours, names{topic: t.topic, ours: consoleGroup}, 0, defaultInFlight)
		sp.Job, sp.Backoff = provision, second
		p, err := spawn(sp)
		if err != nil {
			return err
		}
		if _, err := p.await(ctx, time.Minute); err != nil {
			return err
		}
		if err := e.fillDLQ(ctx, sp, n); err != nil {
			return err
		}
	}
	for run := range e.options.runs {
		if err := e.browse(ctx, run+1, topics, n); err != nil {
			return err
		}
	}
	return nil
}

// browse acts as a user of the console.
func (e *experiment) browse(ctx context.Context, run int, topics []string, n int) error {
	sp := e.spec(ours, names{topic: topics[0], ours: consoleGroup}, run, defaultInFlight)
	sp.Job, sp.Backoff, sp.Topics = consoleJob, second, topics
	var err error
	if sp.Listen, err = freeAddress(ctx); err != nil {
		return err
	}
	p, err := spawn(sp)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := p.awaitReady(ctx); err != nil {
		return err
	}
	v := newVisitor("http://" + sp.Listen + "/")
	defer v.tick.Stop()
	if err := v.look(ctx); err != nil { // the page as the first visitor sees it
		return err
	}
	first, began := v.waits[0], time.Now()
	want := fmt.Sprintf("%s dead letters", count(n*consoleQueues))
	for !strings.Contains(v.page, want) || strings.Contains(v.page, "not read") {
		if time.Since(began) > 10*time.Minute {
			return fmt.Errorf("the console did not read all DLQs within 10 min:\n%s", v.page)
		}
		if err := v.look(ctx); err != nil {
			return err
		}
	}
	read := time.Since(began)
	for time.Since(began) < read+e.lasting(time.Minute) { // it counts, and reads once more
		if err := v.look(ctx); err != nil {
			return err
		}
	}
	whole, err := v.whole(ctx)
	if err != nil {
		return err
	}
	p.stop()
	out, err := p.await(ctx, time.Minute)
	if err != nil {
		return err
	}
	e.record(ours, run, out)
	slices.Sort(v.waits)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	p99, slowest := v.waits[min(len(v.waits)-1, len(v.waits)*99/100)], v.waits[len(v.waits)-1]
	e.sayf("run %d: first byte at once %.1f ms, p99 %.1f, max %.1f of %d; all read after %.1f s; %d bytes; peak %.1f MiB, steady %.1f MiB",
		run, ms(first), ms(p99), ms(slowest), len(v.waits), read.Seconds(), whole, mib(out.PeakRSS), mib(out.SteadyRSS))
	e.add("first byte, slowest", "ms", atMost(200), ms(slowest))
	e.add("first byte p99", "ms", nil, ms(p99))
	e.add("first byte, at once", "ms", nil, ms(first))
	e.add("peak memory", "MiB", atMost(100), mib(out.PeakRSS))
	e.add("steady memory", "MiB", nil, mib(out.SteadyRSS))
	e.add("whole page", "kB", atMost(150), float64(whole)/1000)
	e.add("until all are read", "s", nil, read.Seconds())
	return nil
}

// visitor asks for the home page ten times a second.
type visitor struct {
	url    string
	client *http.Client
	tick   *time.Ticker
	page   string
	waits  []time.Duration // for the first byte
}

func newVisitor(url string) *visitor {
	// A new connection for each request, like that of a user who comes back after a while.
	return &visitor{url: url, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, tick: time.NewTicker(100 * time.Millisecond)}
}

func (v *visitor) get(ctx context.Context, at string) (text string, firstByte time.Duration, err error) {
	began := time.Now()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { firstByte = time.Since(began) }})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url+at, nil)
	if err != nil {
		return "", 0, err
	}
	answer, err := v.client.Do(r)
	if err != nil {
		return "", 0, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s%s is %s: %s", v.url, at, answer.Status, body)
	}
	return string(body), firstByte, err
}

// look asks for the page once.
func (v *visitor) look(ctx context.Context) error {
	<-v.tick.C
	page, wait, err := v.get(ctx, "")
	v.page = page
	v.waits = append(v.waits, wait)
	return err
}

var assets = regexp.MustCompile(`(?:src|href)="(assets/[^"]+)"`)

// whole is the size of the page and the files that it loads.
func (v *visitor) whole(ctx context.Context) (size int, err error) {
	size = len(v.page)
	found := assets.FindAllStringSubmatch(v.page, -1)
	if len(found) < 3 {
		return 0, fmt.Errorf("the page loads %d files, want at least style, script and icon", len(found))
	}
	for _, m := range found {
		text, _, err := v.get(ctx, m[1])
		if err != nil {
			return 0, err
		}
		size += len(text)
	}
	return size, nil
}

// doConsole serves the console.
func doConsole(ctx context.Context, s spec, ready func()) (*outcome, error) {
	cpu, began := cpuTime(), time.Now()
	client, err := kafka.Open(ctx, s.config(nil))
	if err != nil {
		return nil, err
	}
	last := context.WithoutCancel(ctx)
	var queues []console.Queue
	for _, topic := range s.Topics {
		q, err := client.Operations().DeadLetters(ctx, mq.DeadLetterConfig{Topic: topic})
		if err != nil {
			return nil, errors.Join(err, client.Close(last))
		}
		defer q.Close()
		queues = append(queues, console.Queue{Queue: q})
	}
	stopProfile, err := s.startProfile()
	if err != nil {
		return nil, errors.Join(err, client.Close(last))
	}
	web, err := console.New(console.Config{Queues: queues})
	if err != nil {
		return nil, errors.Join(err, client.Close(last))
	}
	err = web.ListenAndServe(ctx, console.ServeConfig{Address: s.Listen, Ready: func(string) { ready() }})
	out := &outcome{
		Seconds: time.Since(began).Seconds(), CPU: (cpuTime() - cpu).Seconds(), PeakRSS: memory("VmHWM"), SteadyRSS: memory("VmRSS"), Finished: time.Now(),
		Settings: "defaults, in a process of its own",
	}
	stopProfile()
	web.Close()
	return out, errors.Join(err, client.Close(last))
}
