package brokers

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// EnvWay requires one way to start brokers: "docker" or "native".
const EnvWay = "REDELIVER_TEST_WAY"

// byWay starts one broker in docker or natively, depending on the environment and the machine.
func byWay[B any](
	ctx context.Context, what string, logf func(string, ...any),
	composed func(command []string) (B, error), native func() (B, error),
) (B, error) {
	var none B
	switch way := os.Getenv(EnvWay); way {
	case "native":
		return native()
	case "docker":
		dc, err := findCompose(ctx)
		if err != nil {
			return none, fmt.Errorf("%s=docker: %w", EnvWay, err)
		}
		return composed(dc)
	case "":
	default:
		return none, fmt.Errorf("%s=%q is not a way to start a broker; use docker or native", EnvWay, way)
	}

	dc, err := findCompose(ctx)
	if err != nil {
		return native() // no daemon is the normal case, so log nothing
	}
	b, err := composed(dc)
	if err == nil || ctx.Err() != nil {
		return b, err
	}
	logf("docker compose could not start %s, starting it natively instead (%s=docker insists): %v", what, EnvWay, err)
	b, nativeErr := native()
	if nativeErr != nil {
		return none, errors.Join(err, nativeErr)
	}
	return b, nil
}
