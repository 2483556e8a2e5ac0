package cli

import (
	"bytes"
	"errors"
	"testing"
)

// fullDisk is a writer whose first write fails.
type fullDisk struct {
	log   bytes.Buffer
	tries int
}

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.tries++; d.tries == 1 {
		return 0, errors.New("no space left")
	}
	return d.log.Write(p)
}

// A line that could not be written is not written later: the console refuses an action that it cannot log.
func TestAFailedLineIsNotWrittenLater(t *testing.T) {
	t.Parallel()
	var disk fullDisk
	w := &escapedLines{w: &disk}
	if _, err := w.Write([]byte("refused\n")); err == nil {
		t.Error("the first line was written")
	}
	if _, err := w.Write([]byte("allowed\n")); err != nil || disk.log.String() != "allowed\n" {
		t.Errorf("the log is %q (%v)", disk.log.String(), err)
	}
}
