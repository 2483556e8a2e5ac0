package kafkashare

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wait"
)

// isDenied reports whether err says that the user lacks a right.
func isDenied(err error) bool {
	return errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.GroupAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed)
}

// explain returns the error of a request, or nil. If the user lacks a right, it says which one.
func explain(r kafkaname.Request, err error) error {
	if !isDenied(err) {
		return err
	}
	return r.Denied(err)
}

// The requests whose results members record.
const (
	fetchRequest      = "Fetch"
	shareFetchRequest = "ShareFetch"
	commitRequest     = "OffsetCommit"
)

// done records the result of a request, and returns its error with an explanation.
func (r *reader) done(req kafkaname.Request, err error) error {
	err = explain(req, err)
	r.operations.Record(engine.Operation{Name: req.Name, Place: req.Place()}, err, isDenied(err), req.Name == commitRequest)
	return err
}

// probeTimeout bounds one probe.
const probeTimeout = 20 * time.Second

// keepProbing makes the requests that the members need at intervals until ctx ends. franz-go tells of few refusals: a
// topic that the user may not describe leaves a subscription by regular expression in silence.
func (r *reader) keepProbing(ctx context.Context) {
	for wait.For(ctx, r.client.checkInterval) == nil {
		probeCtx, cancel := context.WithTimeout(ctx, probeTimeout)
		r.probe(probeCtx)
		cancel()
	}
}

func (r *reader) probe(ctx context.Context) {
	l, cl := r.layout, r.client.client
	if member := r.level.Load(); member != nil && r.operations.Stops() { // nothing begins, so nothing else commits
		member.commitAgain(ctx)
	}
	defer r.replaceAfter(r.operations.Failing())
	found, denied, err := r.client.admin.ask(ctx, append(l.topicNames(), l.origin)...)
	if err != nil {
		return // the members report that the cluster does not answer
	}
	for name := range found {
		_ = r.done(kafkaname.ToTopic("Metadata", "Describe", name), nil)
	}
	for name, err := range denied {
		_ = r.done(kafkaname.ToTopic("Metadata", "Describe", name), err)
	}
	adm := kadm.NewClient(cl)
	r.probeOffsets(ctx, found)
	for name, t := range found {
		if _, waits := l.level(name); !waits {
			continue
		}
		ends, err := adm.ListEndOffsets(ctx, name)
		if err = errors.Join(err, ends.Error()); err != nil && !isDenied(err) || ctx.Err() != nil {
			continue
		}
		if r.done(kafkaname.ToTopic("ListOffsets", "Describe", name), err) != nil {
			continue
		}
		end, _ := ends.Lookup(name, t.Partitions[0].Partition)
		log := pauseMarks{client: cl, topic: name}
		if _, _, err = log.fetch(ctx, t, end.Offset); err == nil || isDenied(err) {
			_ = r.done(kafkaname.ToTopic(fetchRequest, "Read", name), err)
		}
	}
}

var errAllowedAgain = errors.New("kafkashare: a topic on which messages wait could not be read, and now can")

// replaceAfter replaces the level member if one of the operations that failed no longer does: franz-go does not ask again
// for offsets that were refused, and looks for hidden topics after minutes.
func (r *reader) replaceAfter(failed []engine.Operation) {
	fail := r.operations.Failing()
	for _, op := range failed {
		if op.Name == commitRequest || op.Name == shareFetchRequest || op.Name == engine.PublishOperation || slices.Contains(fail, op) {
			continue
		}
		if m := r.level.Load(); m != nil {
			if end := m.end.Load(); end != nil {
				(*end)(errAllowedAgain)
			}
		}
		return
	}
}

// probeOffsets asks for the committed offsets of the topics on which messages wait.
func (r *reader) probeOffsets(ctx context.Context, found map[string]kmsg.MetadataResponseTopic) {
	const request, right = "OffsetFetch", "Describe"
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = r.client.cfg.retryGroup()
	for name := range found {
		if _, waits := r.layout.level(name); waits {
			topic := kmsg.NewOffsetFetchRequestGroupTopic()
			topic.Topic, topic.Partitions = name, []int32{0}
			group.Topics = append(group.Topics, topic)
		}
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, r.client.client)
	if err != nil || len(resp.Groups) != 1 {
		return
	}
	if err := kerr.ErrorForCode(resp.Groups[0].ErrorCode); err == nil || isDenied(err) {
		_ = r.done(kafkaname.ToGroup(request, right, group.Group), err)
	}
	for _, t := range resp.Groups[0].Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err == nil || isDenied(err) {
				_ = r.done(kafkaname.ToTopic(request, right, t.Topic), err)
			}
		}
	}
}

// commitAgain commits what is committed, to learn whether that works.
func (m *levelMember) commitAgain(ctx context.Context) {
	committed := m.cl.CommittedOffsets()
	if len(committed) == 0 {
		return
	}
	m.cl.CommitOffsetsSync(ctx, committed, func(_ *kgo.Client, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		m.recordCommit(req, resp, err)
	})
}

// recordCommit records the results of a commit, for the group and for each topic.
func (m *levelMember) recordCommit(_ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
	if err != nil || resp == nil {
		return // the client tries again
	}
	group := kafkaname.ToGroup(commitRequest, "Read", m.r.client.cfg.retryGroup())
	results := map[kafkaname.Request]error{group: nil}
	for _, t := range resp.Topics {
		about := kafkaname.ToTopic(commitRequest, "Read", t.Topic)
		for _, p := range t.Partitions {
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case errors.Is(err, kerr.GroupAuthorizationFailed):
				results[group] = err
			case isDenied(err):
				results[about] = err
			case err == nil && results[about] == nil:
				results[about] = nil
			}
		}
	}
	for about, err := range results {
		_ = m.r.done(about, err)
	}
}

// quietPoll is how long a poll without an error shows that a topic can be read again.
const quietPoll = 3 * time.Second

// pollContext returns the context of a poll. It ends early while a read of a topic is refused: a poll without an error
// then shows that the topic can be read again.
func (r *reader) pollContext(ctx context.Context, request string) (poll context.Context, cancel context.CancelFunc, retries bool) {
	if !slices.ContainsFunc(r.operations.Failing(), func(op engine.Operation) bool { return op.Name == request }) {
		return ctx, func() {}, false
	}
	poll, cancel = context.WithTimeout(ctx, quietPoll)
	return poll, cancel, true
}
