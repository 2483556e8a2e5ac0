package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redeliver/redeliver/mq"
)

// template is a CloudFormation template.
type template struct {
	Version     string              `json:"AWSTemplateFormatVersion"`
	Description string              `json:"Description"`
	Resources   map[string]resource `json:"Resources"`
}

// resource is a resource of a template. It is retained when the stack is deleted.
type resource struct {
	Type       string         `json:"Type"`
	Deletion   string         `json:"DeletionPolicy"`
	Update     string         `json:"UpdateReplacePolicy"`
	Properties map[string]any `json:"Properties"`
}

// numberAttributes and boolAttributes are the attributes that are not strings in a template.
var (
	numberAttributes = []string{"DelaySeconds", "KmsDataKeyReusePeriodSeconds", "MaximumMessageSize", "MessageRetentionPeriod", "ReceiveMessageWaitTimeSeconds", "VisibilityTimeout"}
	boolAttributes   = []string{"ContentBasedDeduplication", "FifoQueue", "SqsManagedSseEnabled"}
)

// sqsFormatters returns the formatters for AWS.
func sqsFormatters(p *mq.Plan, region string) map[string]planFormatter {
	return map[string]planFormatter{
		formatCloudFormation: func(*formatFlags) (string, []string, error) { return cloudFormation(p) },
		formatIAM:            func(m *formatFlags) (string, []string, error) { return iamPolicy(p, region, m) },
	}
}

// resourceNames maps the kinds of queues to the names of the resources.
var resourceNames = map[string]string{"queue": "Queue", "suspects": "Suspects", "place": "Place", "dlq": "DLQ", "state": "State"}

// cloudFormation returns a template of the queues that do not exist yet, because a stack cannot contain existing ones.
// It returns no text if all exist, because CloudFormation refuses a template without resources.
func cloudFormation(p *mq.Plan) (text string, notes []string, err error) {
	t := template{Version: "2010-09-09", Description: "The queues of redeliver for " + p.Origin, Resources: map[string]resource{}}
	dlq := 0 // index of the DLQ in the plan
	for i, q := range p.Places {
		if q.Kind == "dlq" {
			dlq = i
		}
	}
	for _, q := range slices.Concat(p.Places, p.OperatorPlaces) {
		if q.Exists {
			notes = append(notes, q.Name+" exists already, so it is not in the template")
			continue
		}
		properties, err := propertiesOf(q, p.Places[dlq])
		if err != nil {
			return "", nil, err
		}
		t.Resources[resourceNames[q.Kind]] = resource{"AWS::SQS::Queue", "Retain", "Retain", properties}
	}
	if len(t.Resources) == 0 {
		return "", append(notes, "all queues exist, so there is no template"), nil
	}
	for _, q := range p.OperatorPlaces {
		notes = append(notes, q.Name+" is for work on the DLQ")
	}
	text, err = jsonFile(t)
	return text, notes, err
}

// propertiesOf returns the attributes of a queue as properties of a template.
func propertiesOf(q, dlq mq.Place) (map[string]any, error) {
	properties := map[string]any{"QueueName": q.Name}
	for name := range q.Settings {
		value := q.Setting(name)
		switch {
		case slices.Contains(numberAttributes, name):
			properties[name] = json.Number(value)
		case slices.Contains(boolAttributes, name):
			properties[name] = value == "true"
		case strings.HasSuffix(name, "Policy"): // the attribute contains JSON
			var policy map[string]any
			if err := json.Unmarshal([]byte(value), &policy); err != nil {
				return nil, failed(codeFailed, "reading the %s of %s as JSON: %w", name, q.Name, err)
			}
			if policy["deadLetterTargetArn"] == dlq.ARN && !dlq.Exists { // the DLQ has no ARN yet
				policy["deadLetterTargetArn"] = map[string]any{"Fn::GetAtt": []string{resourceNames["dlq"], "Arn"}}
			}
			properties[name] = policy
		default:
			properties[name] = value
		}
	}
	return properties, nil
}

// policyDocument is an IAM policy.
type policyDocument struct {
	Version   string            `json:"Version"`
	Statement []policyStatement `json:"Statement"`
}

type policyStatement struct {
	Sid      string   `json:"Sid"`
	Effect   string   `json:"Effect"`
	Action   []string `json:"Action"`
	Resource string   `json:"Resource"`
}

// iamPolicy returns a policy with the fewest rights on each queue.
func iamPolicy(p *mq.Plan, region string, m *formatFlags) (text string, notes []string, err error) {
	rights := p.Rights
	if m.role == forOperator {
		rights = p.OperatorRights
	}
	// New queues are created in the account and region of an existing one.
	var beside string
	for _, r := range p.Rights {
		beside = cmp.Or(beside, r.ARN)
	}
	doc := policyDocument{Version: "2012-10-17"}
	for _, r := range rights {
		arn := r.ARN
		if arn == "" {
			if arn, err = arnOf(r.Name, beside, region, m.account); err != nil {
				return "", nil, err
			}
		}
		doc.Statement = append(doc.Statement, policyStatement{Sid: sidOf(p, r.Name), Effect: "Allow", Action: r.Operations, Resource: arn})
	}
	keys := make(map[string]bool)
	for _, q := range p.Places {
		if key := q.Setting("KmsMasterKeyId"); key != "" && key != "alias/aws/sqs" {
			keys[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		notes = append(notes, fmt.Sprintf("the queues are encrypted with key %s, which also requires kms:Decrypt and kms:GenerateDataKey on it", key))
	}
	text, err = jsonFile(doc)
	return text, notes, err
}

func sidOf(p *mq.Plan, queue string) string {
	for _, q := range slices.Concat(p.Places, p.OperatorPlaces) {
		if q.Name == queue {
			return resourceNames[q.Kind]
		}
	}
	return ""
}

// arnOf returns the ARN of a queue that does not exist yet, in the account and region of another queue, or in the
// account of --account.
func arnOf(queue, beside, region, account string) (string, error) {
	if at := strings.LastIndexByte(beside, ':'); at >= 0 {
		return beside[:at+1] + queue, nil
	}
	if account == "" {
		return "", usagef("the ARN of %s is not known, because no queue exists yet: give the number of the AWS account with --account", queue)
	}
	partition := "aws"
	switch {
	case strings.HasPrefix(region, "cn-"):
		partition = "aws-cn"
	case strings.HasPrefix(region, "us-gov-"):
		partition = "aws-us-gov"
	}
	return fmt.Sprintf("arn:%s:sqs:%s:%s:%s", partition, region, account, queue), nil
}
