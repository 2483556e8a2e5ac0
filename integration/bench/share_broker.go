package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafkashare"
)

// openShare is adapters/kafkashare with its defaults.
func (s spec) openShare(ctx context.Context, sink redeliver.Sink) (*consumer, error) {
	client, err := kafkashare.Open(ctx, kafkashare.Config{Brokers: s.Brokers, Group: s.Group, MaxInFlight: s.InFlight, Policy: s.policy(), Sink: sink})
	if err != nil {
		return nil, err
	}
	settings := fmt.Sprintf("defaults, MaxInFlight %d, %d members a process", s.InFlight, kafkashare.DefaultClients)
	return s.ours(client.Subscriber(), client.Close, settings), nil
}

// retryGroup is the consumer group that reads the levels of a share group.
func (s spec) retryGroup() string { return s.Group + "-retry" }

// joined reports whether that many processes of a side are in its groups.
func (c *cluster) joined(ctx context.Context, s spec, processes int) (bool, error) {
	group := s.Group
	if s.Side == share {
		group = s.retryGroup()
		shares, err := c.admin.DescribeShareGroups(ctx, s.Group)
		if err != nil {
			return false, err
		}
		members := shares[s.Group].Members
		idle := func(m kadm.ShareGroupMember) bool { return len(m.Assignment) == 0 }
		if len(members) != processes*kafkashare.DefaultClients || slices.ContainsFunc(members, idle) {
			return false, nil
		}
	}
	groups, err := c.admin.DescribeGroups(ctx, group)
	if err != nil {
		return false, err
	}
	return groups[group].State == "Stable" && len(groups[group].Members) == processes, nil
}

// unsettledOfShare counts what a share group has not accepted, and what is not committed on its levels.
func (c *cluster) unsettledOfShare(ctx context.Context, s spec) (int64, error) {
	groups, err := c.admin.DescribeShareGroupOffsets(ctx, s.Group)
	if err != nil {
		return 0, err
	}
	var left int64
	for _, parts := range groups[s.Group].Offsets {
		for _, o := range parts {
			if o.Lag > 0 { // -1: nothing was read yet
				left += o.Lag
			}
		}
	}
	topics, err := c.topicsOf(ctx, names{topic: s.Topic})
	if err != nil {
		return 0, err
	}
	waiting := slices.DeleteFunc(topicsReadBy(s, topics), func(topic string) bool { return topic == s.Topic })
	behind, err := c.lag(ctx, s.retryGroup(), waiting...)
	return left + behind, err
}

// cpu returns the processor time of the broker's process, or 0 if it is not one of this machine that can be read.
func (c *cluster) cpu() time.Duration {
	if c.pid == 0 {
		_, port, err := net.SplitHostPort(c.addrs[0])
		if err != nil {
			return 0
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return 0
		}
		c.pid = listener(uint16(n))
	}
	return cpuOf(c.pid)
}

// clockTicks is how many clock ticks /proc/PID/stat counts in a second, on every architecture of Linux that Go has.
const clockTicks = 100

// cpuOf returns the user and system time of a process, or 0 if there is none.
func cpuOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The command's name is in parentheses and may contain anything. utime and stime are the 12th and 13th field after it.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / clockTicks
}

// listener returns the process that listens on a TCP port of this machine, or 0.
func listener(port uint16) int {
	sockets := make(map[string]bool)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			const listening = "0A"
			f := strings.Fields(line)
			if len(f) > 9 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == listening {
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0
	}
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && sockets[to] {
			pid, err := strconv.Atoi(strings.Split(file, "/")[2])
			if err == nil {
				return pid
			}
		}
	}
	return 0
}
