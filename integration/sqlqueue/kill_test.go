package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

const runsProgram = "SQLQUEUE_TEST_DB" // a process of this test runs the program on this file

func TestMain(m *testing.M) {
	if file := os.Getenv(runsProgram); file != "" {
		if err := run(context.Background(), file, 0); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// attempt is one line of the program.
type attempt struct {
	id       string
	n        int
	due, ran int64 // Unix milliseconds
}

// runProgram runs the program until it ends, or kills it after some attempts if kill is not 0, and returns the attempts.
func runProgram(t *testing.T, file string, kill int) (all []attempt) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), runsProgram+"="+file), t.Output()
	lines, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for out := bufio.NewScanner(lines); out.Scan(); {
		var a attempt
		if _, err := fmt.Sscanf(out.Text(), "attempt %s %d %d %d", &a.id, &a.n, &a.due, &a.ran); err != nil {
			t.Fatalf("%q: %v", out.Text(), err)
		}
		if all = append(all, a); len(all) == kill {
			_ = cmd.Process.Kill() // SIGKILL
		}
	}
	if err := cmd.Wait(); err != nil && kill == 0 {
		t.Fatal(err)
	}
	return all
}

// Processes that are killed lose no message: each one succeeds or is in the DLQ with all its attempts, and no retry is early.
func TestKilledProcessesLoseNothing(t *testing.T) {
	t.Parallel()
	const messages, kills = 60, 6
	file := filepath.Join(t.TempDir(), "queue.db")
	db := newQueue(t, file, messages)

	var all []attempt
	for i := range kills {
		all = append(all, runProgram(t, file, 7+5*i)...)
	}
	all = append(all, runProgram(t, file, 0)...)

	last := make(map[string]int)
	for _, a := range all {
		if a.due > a.ran {
			t.Errorf("attempt %d of %s began %d ms before it was due", a.n, a.id, a.due-a.ran)
		}
		last[a.id] = max(last[a.id], a.n)
	}
	dead := deadAttempts(t, db)
	for i := range messages {
		id := messageID(i)
		kind, _, _ := strings.Cut(id, "-")
		if want := map[string]int{"good": 1, "once": 2, "bad": 3}[kind]; last[id] != want {
			t.Errorf("the last attempt of %s was %d, want %d", id, last[id], want)
		}
		if want := map[string]int{"bad": 3}[kind]; dead[id] != want {
			t.Errorf("the dead letter of %s has %d attempts, want %d", id, dead[id], want)
		}
	}
	t.Logf("report: %d messages and %d kills: %d attempts ran, %d without kills", messages, kills, len(all), messages*2)
}

// A process that stops without having settled anything holds its rows until its lease ends, and not longer.
func TestRowsOfADeadProcessComeBackAfterItsLease(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "queue.db")
	db := newQueue(t, file, 1)
	until := time.Now().Add(1500 * time.Millisecond)
	if _, err := db.ExecContext(t.Context(), `UPDATE messages SET lease = 'dead', leased_until = $1`, until.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	all := runProgram(t, file, 0)
	if len(all) != 1 || all[0].n != 1 || all[0].ran < until.UnixMilli() {
		t.Errorf("attempts %+v, want one, the first, not before %d", all, until.UnixMilli())
	}
}

// newQueue makes a database with n messages.
func newQueue(t *testing.T, file string, n int) *sql.DB {
	t.Helper()
	db, err := openFile(file, "FULL")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := addMessages(t.Context(), db, n); err != nil {
		t.Fatal(err)
	}
	return db
}

// deadAttempts returns the number of attempts of each dead letter, by its id.
func deadAttempts(t *testing.T, db *sql.DB) map[string]int {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT id, state FROM dead_letters`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := make(map[string]int)
	for rows.Next() {
		var id, state string
		if err := rows.Scan(&id, &state); err != nil {
			t.Fatal(err)
		}
		st, findings := driver.ParseHeaders("messages", readHeaders(t, state))
		if st.ID != id || st.Reason != redeliver.ReasonExhausted || findings != nil {
			t.Errorf("the dead letter of %s has the state %+v, findings %v", id, st, findings)
		}
		all[id] = st.Attempts
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// readHeaders returns the headers of a row.
func readHeaders(t testing.TB, text string) (headers []driver.Header) {
	t.Helper()
	var all map[string]string
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	for name, value := range all {
		headers = append(headers, driver.Header{Name: name, Value: value})
	}
	return headers
}
