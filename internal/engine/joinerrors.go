package engine

import (
	"errors"
	"fmt"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
)

// JoinErrors joins the errors of several topics or queues, of which some may be nil. It puts the configuration problems of all of
// them into one redeliver.ConfigError, whose text begins with the adapter's name.
func JoinErrors(adapter string, errs []error) error {
	var ps check.Problems
	var others []error
	for _, err := range errs {
		if refused, ok := errors.AsType[*redeliver.ConfigError](err); ok {
			ps = append(ps, refused.Problems...)
		} else {
			others = append(others, err)
		}
	}
	if err := ps.Err(); err != nil {
		others = append(others, fmt.Errorf("%s: %w", adapter, err))
	}
	return errors.Join(others...)
}
