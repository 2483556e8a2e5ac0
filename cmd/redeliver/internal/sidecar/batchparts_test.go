package sidecar

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
)

// Messages of a batch that are posted alone share one timeout. A message that was not posted when a third of the time
// is left has not failed.
func TestABatchHasOneTime(t *testing.T) {
	for name, c := range map[string]struct {
		whole, each time.Duration // duration of a post
		hangs       string
		want        []string
		err         error
	}{
		"each takes long":      {each: time.Second, want: []string{"0 ack", "1 ack", "2 ack", "3 ack", "6 late", "7 late", "4 ack", "5 ack"}},
		"one hangs":            {each: time.Second, hangs: "c", want: []string{"0 ack", "1 ack", "3 late", "4 late", "5 late", "6 late", "7 late"}, err: redeliver.ErrTimeout},
		"the batch takes long": {whole: 7 * time.Second, want: []string{"0 late", "1 late", "2 late", "3 late", "4 late", "5 late", "6 late", "7 late"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := handlerOver(HTTPConfig{}, func(r *http.Request) (*http.Response, error) {
					all := bodies(t, r)
					takes, code := c.each, http.StatusNoContent
					if len(all) > 1 {
						takes, code = c.whole, http.StatusUnprocessableEntity
					}
					if all[0] == c.hangs && len(all) == 1 {
						takes = time.Hour
					}
					select {
					case <-time.After(takes):
						return answers(code, ""), nil
					case <-r.Context().Done():
						return nil, r.Context().Err()
					}
				})
				ctx, cancel := context.WithTimeoutCause(t.Context(), 8250*time.Millisecond, &redeliver.TimeoutError{After: time.Minute})
				defer cancel()
				var mu sync.Mutex
				var got answered
				err := h.HandleBatch(ctx, batchOf("a", "b", "c", "d", "e", "f", "g", "h"), func(i int, err error) {
					mu.Lock()
					defer mu.Unlock()
					got.answer(i, err)
				})
				mu.Lock()
				defer mu.Unlock()
				for i := range got {
					got[i] = strings.Replace(got[i], "postponed "+errNotSent.Error(), "late", 1)
				}
				// Postponed messages are answered while another is posted.
				slices.Sort(got)
				slices.Sort(c.want)
				if !slices.Equal(got, answered(c.want)) || !errors.Is(err, c.err) {
					t.Errorf("%q, %v", got, err)
				}
			})
		})
	}
}

// A part that is refused when the time is over is not posted again, either.
func TestABatchIsRefusedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handlerOver(HTTPConfig{Retries: 1}, func(r *http.Request) (*http.Response, error) {
			if len(bodies(t, r)) > 1 {
				<-time.After(7 * time.Second)
				return answers(http.StatusUnprocessableEntity, ""), nil
			}
			return answers(http.StatusNoContent, ""), nil
		})
		all := batchOf("a", "b", "c")
		all[0].State.Attempts = 1
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		var got answered
		late := "postponed " + errNotSent.Error()
		if err := h.HandleBatch(ctx, all, got.answer); err != nil || !slices.Equal(got, answered{"0 ack", "1 " + late, "2 " + late}) {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// A 2xx that arrives as the time ends counts.
func TestABatchIsDoneAtTheEndOfItsTime(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	posts := 0
	h := handlerOver(HTTPConfig{}, func(r *http.Request) (*http.Response, error) {
		if len(bodies(t, r)) > 1 {
			return answers(http.StatusUnprocessableEntity, ""), nil
		}
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		posts++
		cancel(&redeliver.TimeoutError{After: time.Minute})
		return answers(http.StatusNoContent, ""), nil
	})
	var got answered
	if err := h.HandleBatch(ctx, batchOf("a", "b"), got.answer); !errors.Is(err, redeliver.ErrTimeout) || !slices.Equal(got, answered{"0 ack"}) || posts != 1 {
		t.Errorf("%q, %v, %d posts", got, err, posts)
	}
}

// A message in its last attempt is posted alone, because a batch fails as a whole.
func TestTheLastAttemptIsAlone(t *testing.T) {
	t.Parallel()
	const retries = 2
	for name, c := range map[string]struct {
		all     string // their bodies, each followed by its number of attempts
		retries int
		posts   []string
		want    []string
		err     string // of all without an answer
	}{
		"none":                 {all: "a0 b1", retries: retries, posts: []string{"a b"}, err: "ack"},
		"one among others":     {all: "a0 b1 c2 d0", retries: retries, posts: []string{"a b", "c", "d"}, want: []string{"0 ack", "1 ack", "2 ack", "3 ack"}, err: "ack"},
		"no retries":           {all: "a0 b0 c1", posts: []string{"a b c"}, err: "ack"},
		"more than there are":  {all: "a3 b0", retries: retries, posts: []string{"a", "b"}, want: []string{"0 ack", "1 ack"}, err: "ack"},
		"beside one that is":   {all: "a2 x2 b2", retries: retries, posts: []string{"a", "x", "b"}, want: []string{"0 ack", "1 the handler answered 500 Internal Server Error", "2 ack"}, err: "ack"},
		"a part fails":         {all: "a0 x0 b2", retries: retries, posts: []string{"a x", "b"}, want: []string{"0 the handler answered 500 Internal Server Error", "1 the handler answered 500 Internal Server Error", "2 ack"}, err: "ack"},
		"a part is refused":    {all: "b2 a0 bad0 c2", retries: retries, posts: []string{"b", "a bad", "a", "bad", "c"}, want: []string{"0 ack", "1 ack", "2 permanent the handler answered 422 Unprocessable Entity", "3 ack"}, err: "ack"},
		"nobody is there":      {all: "gone0 b2", retries: retries, posts: []string{"gone"}, err: "the handler cannot be reached: refused"},
		"it goes away between": {all: "a0 gone2 b0", retries: retries, posts: []string{"a", "gone", "b"}, want: []string{"0 ack", "1 postponed the handler cannot be reached: refused", "2 ack"}, err: "ack"},
	} {
		var posts []string
		h := handlerOver(HTTPConfig{Retries: c.retries}, func(r *http.Request) (*http.Response, error) {
			all := bodies(t, r)
			posts = append(posts, strings.Join(all, " "))
			switch {
			case slices.Contains(all, "x"):
				return answers(http.StatusInternalServerError, ""), nil
			case slices.Contains(all, "bad"):
				return answers(http.StatusUnprocessableEntity, ""), nil
			case slices.Contains(all, "gone"):
				return nil, errors.New("refused")
			default:
				return answers(http.StatusNoContent, ""), nil
			}
		})
		var all []*Message
		for word := range strings.FieldsSeq(c.all) {
			m := batchOf(word[:len(word)-1])[0]
			m.State.Attempts = int(word[len(word)-1] - '0')
			all = append(all, m)
		}
		var got answered
		err := h.HandleBatch(t.Context(), all, got.answer)
		if !slices.Equal(posts, c.posts) || !slices.Equal(got, answered(c.want)) || inWords(err) != c.err {
			t.Errorf("%s: %q, %q after the posts %q", name, got, inWords(err), posts)
		}
	}
}
