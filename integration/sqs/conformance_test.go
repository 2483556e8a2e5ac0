package sqs_test

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
)

// The contract of every adapter runs on standard queues.
func TestConformance(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	adaptertest.Run(t, newHarness(t, brokers.RequireSQS(t), false))
	t.Logf("report: the conformance kit on SQS, standard queues: %.1f s", time.Since(begin).Seconds())
}

// The contract runs on FIFO queues too.
func TestConformanceFIFO(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	adaptertest.Run(t, newHarness(t, brokers.RequireSQS(t), true))
	t.Logf("report: the conformance kit on SQS, FIFO queues: %.1f s", time.Since(begin).Seconds())
}

func TestGuaranteeTable(t *testing.T) {
	adaptertest.CheckTable(t, "../../docs/reference/guarantees.md", "SQS", features)
	adaptertest.CheckTable(t, "../../docs/reference/guarantees.md", "SQS FIFO", fifoFeatures)
}

// fifoFeatures are those of FIFO queues.
var fifoFeatures = adaptertest.Features{CountsCrashes: true, OrderFirstAttempts: true, BinaryHeaders: true, ForeignHeaders: true, Refuse: true, KeepsAttempts: true, MessageTimes: true, NoHeadOfLineBlocking: true, OrderBlocking: true, KeepsAttemptsInPlace: true, OrderThroughRetries: true, GroupPause: true}
