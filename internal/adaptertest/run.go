package adaptertest

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
)

// atOnce is how many tests run at once. They mostly wait.
const atOnce = 12

// test is the test of one promise.
type test struct {
	name string
	body func(*fixture)
	// needs lists the fields of Features that the promise requires. If it is empty, every adapter makes the promise.
	needs string
	form  form
	// router means that the test needs a Router, a Publisher or a subscription of Watermill's.
	router bool
	// possible reports whether a harness has what the test needs. Nil means that all have it.
	possible func(*Harness) bool
	// groups is how many groups read the origin. Default 1.
	groups int
}

func tests() []test {
	return slices.Concat(
		alsoIn(nativeMessages, slices.Concat(settling(), attempts(), otherOutcomes(), deadlines(), dueTimes(), olderPolicies(), fidelity(), bounds(), forgeries(), hostile(), replays(), traces(),
			crashes(), shutdowns(), orders(), policies(), blocking(), perKey(), lives(), throttles(), outages(), pauses(), loads())),
		nativeStarts(), publishing(), receives(), alsoIn(nativeBatches, slices.Concat(batching(), batchEnds(), batchOrders())), memory())
}

// Run runs the kit: one subtest for each promise. The log lists promises that the harness's Features exclude.
func Run(t *testing.T, h Harness) {
	t.Helper()
	runTests(t, h, tests())
}

// RunHostile is Run for only the promises about hostile messages.
func RunHostile(t *testing.T, h Harness) {
	t.Helper()
	runTests(t, h, hostile())
}

func runTests(t *testing.T, h Harness, all []test) {
	t.Helper()
	var todo []test
	for _, c := range all {
		missing := slices.DeleteFunc(strings.Fields(c.needs), h.Features.has)
		if len(missing) > 0 {
			t.Logf("%s makes no promise of %s: %s is not run", h.Name, strings.Join(missing, ", "), c.name)
			continue
		}
		if c.form.missing(&h) {
			t.Logf("%s has no handlers in a form of its own: %s is not run", h.Name, c.name)
			continue
		}
		if c.possible != nil && !c.possible(&h) {
			t.Logf("%s cannot be made to refuse such a message: %s is not run", h.Name, c.name)
			continue
		}
		todo = append(todo, c)
	}
	runEach(t, h, todo)
}

// runEach runs tests, each with its own fixture.
func runEach(t *testing.T, h Harness, todo []test) {
	t.Helper()
	if h.Wrap != nil {
		for _, c := range todo {
			t.Run(c.name, func(t *testing.T) {
				h.Wrap(t, func(t *testing.T) { c.body(newFixture(t, h, c)) }) //nolint:thelper // it is the test
			})
		}
		return
	}
	// Not t.Parallel: its limit is the number of processors, and these tests hardly use one.
	next := make(chan test)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for c := range next {
				t.Run(c.name, func(t *testing.T) { c.body(newFixture(t, h, c)) })
			}
		})
	}
	for _, c := range todo {
		next <- c
	}
	close(next)
	workers.Wait()
}

// has reports whether a feature is set.
func (f Features) has(name string) bool { return reflect.ValueOf(f).FieldByName(name).Bool() }
