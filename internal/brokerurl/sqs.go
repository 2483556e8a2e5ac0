package brokerurl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// The default region and credentials for a server that replaces SQS, which accepts any.
const (
	anyRegion = "us-east-1"
	anyKey    = "redeliver"
)

var region = regexp.MustCompile(`^[a-z0-9-]+$`)

// readSQS parses what follows sqs:// and sqs+http://. For sqs+http:// the hosts were parsed before.
func (u *URL) readSQS(s scheme, path string, values url.Values) error {
	if path != "" && path != "/" {
		return errors.New("an sqs URL has no path: the queue is given separately")
	}
	for name := range values {
		return fmt.Errorf("unknown parameter %q: other settings are in the AWS configuration, for example AWS_PROFILE", name)
	}
	if s.name == "sqs+http" && len(u.Hosts) > 1 {
		return errors.New("an SQS URL must have one address")
	}
	return nil
}

// readRegion parses the region of sqs://eu-central-1.
func (u *URL) readRegion(authority string) error {
	if !region.MatchString(authority) {
		return errors.New("sqs:// must be followed by a region only, as in sqs://eu-central-1; the credentials come from the AWS configuration")
	}
	u.Region = authority
	return nil
}

// Endpoint returns the address of an SQS server other than AWS, or "" for AWS.
func (u URL) Endpoint() string {
	if len(u.Hosts) == 0 {
		return ""
	}
	return "http://" + u.Hosts[0]
}

// AWS returns the configuration of an SQS client: AWS's own chain (environment, profile, role) with the URL's region,
// or for sqs+http:// the keys of the URL.
func (u URL) AWS(ctx context.Context) (*aws.Config, error) {
	if u.Endpoint() != "" {
		return &aws.Config{
			Region:      anyRegion,
			Credentials: credentials.NewStaticCredentialsProvider(cmp.Or(u.User, anyKey), cmp.Or(u.Password, anyKey), ""),
		}, nil
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(u.Region))
	if err != nil {
		return nil, fmt.Errorf("reading AWS's configuration: %w", err)
	}
	return &cfg, nil
}
