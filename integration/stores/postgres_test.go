//go:build prove

package stores_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
)

func TestInboxOnPostgreSQL(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", startPostgres(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	tick, late := time.NewTicker(100*time.Millisecond), time.After(2*time.Minute)
	defer tick.Stop()
	for err := db.PingContext(t.Context()); err != nil; err = db.PingContext(t.Context()) {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("PostgreSQL does not answer: %v", err)
		}
	}
	testInbox(t, db)
}

// startPostgres starts a server of Debian's package that only this test uses, and returns its address. The server refuses to run as
// root, so it then runs as the package's user.
func startPostgres(t *testing.T) (url string) {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		t.Fatal("PostgreSQL is not installed: run integration/setup.sh prove")
	}
	bin := filepath.Dir(found[len(found)-1])
	dir, err := os.MkdirTemp("", "redeliver-postgres-") //nolint:usetesting // only root may enter the parent of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	as := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	var log bytes.Buffer
	command := func(name string, args ...string) *exec.Cmd {
		c := exec.Command(filepath.Join(bin, name), args...)
		c.Dir, c.SysProcAttr, c.Stdout, c.Stderr = dir, as, &log, &log
		return c
	}
	if err := command("initdb", "-D", filepath.Join(dir, "data"), "-U", "redeliver", "-A", "trust", "-N").Run(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, &log)
	}
	server := command("postgres", "-D", filepath.Join(dir, "data"), "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT) // at once
		_ = server.Wait()
		if t.Failed() {
			t.Logf("the log of PostgreSQL:\n%s", &log)
		}
	})
	return fmt.Sprintf("postgres://redeliver@127.0.0.1:%d/postgres?sslmode=disable", port)
}
