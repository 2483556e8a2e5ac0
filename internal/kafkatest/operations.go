package kafkatest

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Operation is a kind of request about one topic, one group or the cluster.
type Operation struct {
	Key        kmsg.Key
	Kind, Name string // Kind is "topic", "group" or "cluster"
}

func (o Operation) String() string {
	return strings.TrimSpace(o.Key.Name() + " on " + o.Kind + " " + o.Name)
}

// Right returns the right of Kafka's ACLs that an operation needs.
func (o Operation) Right() string {
	switch o.Key {
	case kmsg.Produce:
		return "Write"
	case kmsg.DeleteRecords:
		return "Delete"
	case kmsg.CreateTopics:
		return "Create"
	case kmsg.DescribeConfigs:
		return "DescribeConfigs"
	case kmsg.IncrementalAlterConfigs:
		return "AlterConfigs"
	case kmsg.Metadata, kmsg.ListOffsets, kmsg.OffsetFetch, kmsg.ListGroups, kmsg.DescribeGroups:
		return "Describe"
	case kmsg.ShareGroupHeartbeat:
		if o.Kind == "topic" {
			return "Describe"
		}
		return "Read"
	case kmsg.InitProducerID:
		return "IdempotentWrite"
	default:
		return "Read"
	}
}

// Need names the right that an operation needs, and where.
func (o Operation) Need() string {
	if o.Kind == "cluster" {
		return o.Right() + " on the cluster"
	}
	return o.Right() + " on " + o.Kind + " " + o.Name
}

// Operations records which operations the clients of a cluster use.
type Operations struct {
	cluster *kfake.Cluster

	mu   sync.Mutex
	used map[Operation]bool
	ids  map[[16]byte]map[kmsg.Key]bool // operations on topics by id, until Used finds their names
}

// RecordOperations begins to record.
func RecordOperations(cluster *kfake.Cluster) *Operations {
	o := &Operations{cluster: cluster, used: make(map[Operation]bool), ids: make(map[[16]byte]map[kmsg.Key]bool)}
	cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		o.record(req)
		return nil, nil, false
	})
	return o
}

func (o *Operations) record(req kmsg.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := kmsg.Key(req.Key())
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest, *kmsg.SASLHandshakeRequest, *kmsg.SASLAuthenticateRequest:
	case *kmsg.InitProducerIDRequest, *kmsg.ListGroupsRequest:
		o.used[Operation{key, "cluster", ""}] = true
	case *kmsg.FindCoordinatorRequest:
		for _, group := range append(req.CoordinatorKeys, req.CoordinatorKey) {
			o.add(key, "group", group)
		}
	default:
		o.walk(key, reflect.ValueOf(req).Elem())
	}
}

func (o *Operations) add(key kmsg.Key, kind, name string) {
	if name != "" {
		o.used[Operation{key, kind, name}] = true
	}
}

// walk finds the topics and groups of a request.
func (o *Operations) walk(key kmsg.Key, v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			o.walk(key, v.Index(i))
		}
	case reflect.Struct:
		for name, field := range v.Fields() {
			field = reflect.Indirect(field)
			if !field.IsValid() {
				continue
			}
			switch name.Name {
			case "Topic":
				o.add(key, "topic", field.String())
			case "Group", "GroupID":
				o.add(key, "group", field.String())
			case "ResourceName":
				kind := "cluster" // of a broker
				switch kmsg.ConfigResourceType(v.FieldByName("ResourceType").Int()) {
				case kmsg.ConfigResourceTypeTopic:
					kind = "topic"
				case kmsg.ConfigResourceTypeGroupConfig:
					kind = "group"
				default:
				}
				o.add(key, kind, field.String())
			case "SubscribedTopicNames":
				for i := range field.Len() {
					o.add(key, "topic", field.Index(i).String())
				}
			case "TopicID":
				if id, ok := reflect.TypeAssert[[16]byte](field); ok {
					if o.ids[id] == nil {
						o.ids[id] = make(map[kmsg.Key]bool)
					}
					o.ids[id][key] = true
				}
			default:
				o.walk(key, field)
			}
		}
	default:
	}
}

// Used returns the operations so far, in the order of their names.
func (o *Operations) Used() []Operation {
	o.mu.Lock()
	ids := o.ids
	o.ids = make(map[[16]byte]map[kmsg.Key]bool)
	o.mu.Unlock()
	var byID []Operation
	for id, keys := range ids {
		if info := o.cluster.TopicIDInfo(id); info != nil {
			for key := range keys {
				byID = append(byID, Operation{key, "topic", info.Topic})
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, op := range byID {
		o.used[op] = true
	}
	all := make([]Operation, 0, len(o.used))
	for op := range o.used {
		all = append(all, op)
	}
	slices.SortFunc(all, func(x, y Operation) int { return strings.Compare(x.String(), y.String()) })
	return all
}

// Deny makes a cluster refuse an operation, as an authorizer does, until Remove is called.
func (o Operation) Deny(cluster *kfake.Cluster) *kfake.FaultHandle {
	fault := kfake.Fault{Keys: []kmsg.Key{o.Key}, Count: -1}
	switch o.Kind {
	case "topic":
		fault.Topic, fault.Err = o.Name, kerr.TopicAuthorizationFailed
	case "group":
		fault.Group, fault.Err = o.Name, kerr.GroupAuthorizationFailed
	default:
		fault.Err = kerr.ClusterAuthorizationFailed
	}
	if o.Key == kmsg.DescribeConfigs || o.Key == kmsg.IncrementalAlterConfigs {
		fault.Topic, fault.Group, fault.Resource = "", "", o.Name
	}
	return cluster.Fault(fault)
}
