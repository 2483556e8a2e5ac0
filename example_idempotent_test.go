package redeliver_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/redeliver/redeliver"
)

// The id of a message, in the transaction that does its work, makes a handler idempotent. A page of docs shows it; a test
// compares them.
func ExampleFromContext_idempotent() { //nolint:testableexamples // it needs a database
	var db *sql.DB

	charge := func(ctx context.Context, customer string, cents int) error {
		state, _ := redeliver.FromContext(ctx)
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // no effect after the commit
		done, err := tx.ExecContext(ctx, `INSERT INTO handled (id) VALUES ($1) ON CONFLICT DO NOTHING`, state.ID)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 {
			return err // nil: it was handled before
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO charges VALUES ($1, $2)`, customer, cents); err != nil {
			return err
		}
		return tx.Commit()
	}

	fmt.Println(charge(context.Background(), "customer-17", 4000))
}
