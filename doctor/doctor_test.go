package doctor_test

import (
	"errors"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/doctor"
)

// A pause that cannot be read is reported as not checked, and hides nothing else.
func TestAPauseThatCannotBeReadIsNotChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what                          string
		mark                          *redeliver.PauseMark
		err                           error
		symptoms, checked, notChecked int
	}{
		{"not paused", nil, nil, 0, 1, 0},
		{"paused", &redeliver.PauseMark{Reason: "the bank is closed"}, nil, 1, 1, 0},
		{"not readable", nil, errors.New("the topic has no leader"), 0, 0, 1},
	} {
		var d doctor.Diagnosis
		d.AddPause(c.mark, c.err)
		if len(d.Symptoms) != c.symptoms || len(d.Checked) != c.checked || len(d.NotChecked) != c.notChecked {
			t.Errorf("%s: %+v, want %d symptoms, %d checked and %d not checked", c.what, d, c.symptoms, c.checked, c.notChecked)
		}
	}
}
