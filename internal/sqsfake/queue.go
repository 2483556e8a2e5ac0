package sqsfake

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// queue is one queue.
type queue struct {
	name       string
	fifo       bool
	attributes map[string]string
	tags       map[string]string
	messages   []*Message               // in the order in which they were sent
	received   map[string]*Message      // by the latest receipt
	dedup      map[string]deduplication // of FIFO queues
	created    time.Time
	modified   time.Time
	usable     time.Time
	purged     time.Time
	changed    chan struct{} // closed and replaced at each change that a waiting receive may notice
}

// deduplication is the message that a deduplication id was last used for.
type deduplication struct {
	id, sequence string
	until        time.Time
}

func newQueue(name string) *queue {
	now := time.Now()
	q := &queue{
		name: name, fifo: IsFIFO(name), tags: make(map[string]string), received: make(map[string]*Message), dedup: make(map[string]deduplication),
		created: now, modified: now, usable: now, changed: make(chan struct{}),
		attributes: map[string]string{
			"DelaySeconds": "0", "MaximumMessageSize": strconv.Itoa(MaxMessageSize), "MessageRetentionPeriod": "345600", "ReceiveMessageWaitTimeSeconds": "0",
			"VisibilityTimeout": "30", "SqsManagedSseEnabled": "true",
		},
	}
	if q.fifo {
		maps.Copy(q.attributes, map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "false", "DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"})
	}
	return q
}

// wake tells the receives that wait that something has changed.
func (q *queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// number returns an attribute that is a number.
func (q *queue) number(name string) int {
	n, _ := strconv.Atoi(q.attributes[name])
	return n
}

// ranges are the least and greatest values of attributes that are numbers.
var ranges = map[string][2]int{
	"DelaySeconds": {0, maxDelay}, "MaximumMessageSize": {1 << 10, MaxMessageSize}, "MessageRetentionPeriod": {60, 14 * 24 * 60 * 60},
	"ReceiveMessageWaitTimeSeconds": {0, maxWait}, "VisibilityTimeout": {0, maxVisibility}, "KmsDataKeyReusePeriodSeconds": {60, 24 * 60 * 60},
}

// choices are the values of attributes that are words. An empty list allows any value.
var choices = map[string][]string{
	"SqsManagedSseEnabled": {"true", "false"}, "Policy": {}, "KmsMasterKeyId": {}, "RedrivePolicy": {}, "RedriveAllowPolicy": {},
}

// fifoChoices are those that only FIFO queues have.
var fifoChoices = map[string][]string{
	"FifoQueue": {"true", "false"}, "ContentBasedDeduplication": {"true", "false"}, "DeduplicationScope": {"queue", "messageGroup"},
	"FifoThroughputLimit": {"perQueue", "perMessageGroupId"},
}

// checkAttributes returns why SQS refuses attributes for a queue.
func (s *Server) checkAttributes(queue string, given map[string]string) *Refusal {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		v := given[name]
		words, known := choices[name]
		if !known && (IsFIFO(queue) || name == "FifoQueue") {
			words, known = fifoChoices[name]
		}
		bounds, isNumber := ranges[name]
		switch n, err := strconv.Atoi(v); {
		case isNumber && (err != nil || n < bounds[0] || n > bounds[1]):
			return refuse("InvalidAttributeValue", "Invalid value for the parameter %s. Reason: Must be between %d and %d.", name, bounds[0], bounds[1])
		case isNumber:
		case !known:
			return refuse("InvalidAttributeName", "Unknown Attribute %s.", name)
		case len(words) > 0 && !slices.Contains(words, v):
			return refuse("InvalidAttributeValue", "Invalid value for the parameter %s.", name)
		}
	}
	if r := checkRedriveAllowPolicy(given["RedriveAllowPolicy"]); r != nil {
		return r
	}
	return s.checkRedrivePolicy(queue, given["RedrivePolicy"])
}

// redrivePolicy is the attribute RedrivePolicy. maxReceiveCount is a number or a text.
type redrivePolicy struct {
	Target string      `json:"deadLetterTargetArn"`
	Most   json.Number `json:"maxReceiveCount"`
}

// checkRedrivePolicy returns why SQS refuses the RedrivePolicy of a queue.
func (s *Server) checkRedrivePolicy(queue, policy string) *Refusal {
	if policy == "" {
		return nil
	}
	invalid := func(reason string) *Refusal {
		return refuse("InvalidParameterValue", "Value %s for parameter RedrivePolicy is invalid. Reason: %s.", policy, reason)
	}
	var p redrivePolicy
	if json.Unmarshal([]byte(policy), &p) != nil {
		return invalid("Redrive policy is not a valid JSON map")
	}
	if most, err := p.Most.Int64(); err != nil || most < 1 || most > 1000 {
		return invalid("Invalid value for maxReceiveCount: must be between 1 and 1000")
	}
	target := s.queues[nameInARN(p.Target)]
	switch {
	case target == nil:
		return invalid("Dead letter target does not exist")
	case target.fifo != IsFIFO(queue):
		return invalid("Dead-letter queue must be same type of queue as the source")
	case !target.allows(ARN(queue)):
		return invalid("Source queue does not have permission to use the DLQ specified in the RedrivePolicy")
	}
	return nil
}

// redriveAllowPolicy is the attribute RedriveAllowPolicy.
type redriveAllowPolicy struct {
	Permission string   `json:"redrivePermission"`
	Sources    []string `json:"sourceQueueArns"`
}

func checkRedriveAllowPolicy(policy string) *Refusal {
	var p redriveAllowPolicy
	if policy == "" {
		return nil
	}
	if json.Unmarshal([]byte(policy), &p) != nil || !slices.Contains([]string{"allowAll", "denyAll", "byQueue"}, p.Permission) ||
		(p.Permission == "byQueue") != (len(p.Sources) > 0) || len(p.Sources) > 10 {
		return refuse("InvalidParameterValue", "Value %s for parameter RedriveAllowPolicy is invalid.", policy)
	}
	return nil
}

// allows reports whether a queue may name this one in its RedrivePolicy.
func (q *queue) allows(source string) bool {
	var p redriveAllowPolicy
	if json.Unmarshal([]byte(q.attributes["RedriveAllowPolicy"]), &p) != nil {
		return true
	}
	return p.Permission != "denyAll" && (p.Permission != "byQueue" || slices.Contains(p.Sources, source))
}

func nameInARN(arn string) string { return arn[strings.LastIndexByte(arn, ':')+1:] }

// createLocked carries out CreateQueue.
func (s *Server) createLocked(c *Call) (map[string]any, *Refusal) {
	given, now := textMap(c.In, "Attributes"), time.Now()
	if !queueName.MatchString(strings.TrimSuffix(c.Queue, ".fifo")) || len(c.Queue) > 80 || c.fifo() != (given["FifoQueue"] == "true") {
		return nil, refuse("InvalidParameterValue", "The name of a queue can only include alphanumeric characters, hyphens, or underscores, and be 1 to 80 in length. "+
			"That of a FIFO queue, and no other, must end with .fifo suffix.")
	}
	if at, ok := s.deleted[c.Queue]; ok && now.Before(at.Add(deletedTime)) {
		return nil, refuse("QueueDeletedRecently", "You must wait 60 seconds after deleting a queue before you can create another with the same name.")
	}
	if r := s.checkAttributes(c.Queue, given); r != nil {
		return nil, r
	}
	q := s.queues[c.Queue]
	if q == nil {
		q = newQueue(c.Queue)
		q.usable = now.Add(s.options.CreateLatency)
		q.set(given)
		maps.Copy(q.tags, textMap(c.In, "tags"))
		s.queues[c.Queue] = q
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if q.attributes[name] != given[name] {
			return nil, refuse("QueueNameExists", "A queue already exists with the same name and a different value for attribute %s", name)
		}
	}
	return map[string]any{"QueueUrl": URL(c.Queue)}, nil
}

// set sets attributes as they are.
func (q *queue) set(given map[string]string) {
	maps.Copy(q.attributes, given)
	for name, v := range given {
		if v == "" { // removes it
			delete(q.attributes, name)
		}
	}
	if q.attributes["KmsMasterKeyId"] != "" {
		q.attributes["SqsManagedSseEnabled"] = "false"
	}
	q.modified = time.Now()
}

// setLocked carries out SetQueueAttributes.
func (s *Server) setLocked(q *queue, c *Call) (map[string]any, *Refusal) {
	given := textMap(c.In, "Attributes")
	if v, ok := given["FifoQueue"]; ok && v != q.attributes["FifoQueue"] {
		return nil, refuse("InvalidAttributeName", "Unknown Attribute FifoQueue.")
	}
	if r := s.checkAttributes(q.name, given); r != nil {
		return nil, r
	}
	q.set(given)
	s.expireLocked(q)
	q.wake()
	return map[string]any{}, nil
}

// countNames are the attributes that say how many messages a queue has.
const countNames = "ApproximateNumberOfMessages"

// readAttributes carries out GetQueueAttributes.
func (q *queue) readAttributes(c *Call) (map[string]any, *Refusal) {
	all := maps.Clone(q.attributes)
	all["QueueArn"] = ARN(q.name)
	all["CreatedTimestamp"], all["LastModifiedTimestamp"] = strconv.FormatInt(q.created.Unix(), 10), strconv.FormatInt(q.modified.Unix(), 10)
	visible, hidden, delayed, now := 0, 0, 0, time.Now()
	for _, m := range q.messages {
		switch {
		case m.isInFlight(now):
			hidden++
		case m.Visible.After(now):
			delayed++
		default:
			visible++
		}
	}
	all[countNames], all[countNames+"NotVisible"], all[countNames+"Delayed"] = strconv.Itoa(visible), strconv.Itoa(hidden), strconv.Itoa(delayed)
	names := texts(c.In, "AttributeNames")
	if slices.Contains(names, "All") {
		return map[string]any{"Attributes": all}, nil
	}
	asked := map[string]string{}
	for _, name := range names {
		v, has := all[name]
		_, isNumber := ranges[name]
		_, isWord := choices[name]
		if _, onlyFIFO := fifoChoices[name]; !has && !isNumber && !isWord && !onlyFIFO {
			return nil, refuse("InvalidAttributeName", "Unknown Attribute %s.", name)
		}
		if has {
			asked[name] = v
		}
	}
	return map[string]any{"Attributes": asked}, nil
}

// deleteLocked carries out DeleteQueue.
func (s *Server) deleteLocked(q *queue) {
	delete(s.queues, q.name)
	s.deleted[q.name] = time.Now()
	q.wake()
}

func (q *queue) purge() (map[string]any, *Refusal) {
	if !q.purged.IsZero() && time.Since(q.purged) < purgeTime {
		return nil, refuse("PurgeQueueInProgress", "Only one PurgeQueue operation on %s is allowed every 60 seconds.", q.name)
	}
	q.purged, q.messages = time.Now(), nil
	clear(q.received)
	return map[string]any{}, nil
}

// listLocked carries out ListQueues.
func (s *Server) listLocked(c *Call) (map[string]any, *Refusal) {
	most, limited := c.In["MaxResults"].(float64)
	if r := checkRange(c.In, "MaxResults", 1, 1000); r != nil {
		return nil, r
	}
	urls, from := []string{}, text(c.In, "NextToken")
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		switch {
		case !strings.HasPrefix(name, text(c.In, "QueueNamePrefix")) || name < from:
		case limited && len(urls) == int(most):
			return map[string]any{"QueueUrls": urls, "NextToken": name}, nil
		default:
			urls = append(urls, URL(name))
		}
	}
	return map[string]any{"QueueUrls": urls}, nil
}

// listSourcesLocked carries out ListDeadLetterSourceQueues.
func (s *Server) listSourcesLocked(target *queue) (map[string]any, *Refusal) {
	urls := []string{}
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		if p, ok := s.queues[name].redrivePolicy(); ok && p.Target == ARN(target.name) {
			urls = append(urls, URL(name))
		}
	}
	return map[string]any{"queueUrls": urls}, nil
}

// redrivePolicy returns the RedrivePolicy, if there is one.
func (q *queue) redrivePolicy() (p redrivePolicy, ok bool) {
	return p, json.Unmarshal([]byte(q.attributes["RedrivePolicy"]), &p) == nil
}

var tagText = regexp.MustCompile(`^[\p{L}\p{N}\s_.:/=+\-@]*$`)

func (q *queue) tag(c *Call) (map[string]any, *Refusal) {
	given := textMap(c.In, "Tags")
	for k, v := range given {
		if k == "" || len(k) > 128 || len(v) > 256 || !tagText.MatchString(k) || !tagText.MatchString(v) {
			return nil, refuse("InvalidParameterValue", "The tag %q=%q is invalid.", k, v)
		}
	}
	maps.Copy(q.tags, given)
	return map[string]any{}, nil
}

func (q *queue) untag(c *Call) (map[string]any, *Refusal) {
	for _, k := range texts(c.In, "TagKeys") {
		delete(q.tags, k)
	}
	return map[string]any{}, nil
}
