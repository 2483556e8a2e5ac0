package sidecar

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// seen is what a child has received.
type seen struct {
	Args  []string        `json:"args"`
	Env   []string        `json:"env"`
	Body  []byte          `json:"body"`
	Third json.RawMessage `json:"third"` // of descriptor 3
}

// child runs this test's binary as a child.
func child(what string, args []string) int {
	switch what {
	case "echo": // writes what it receives to the file in its first argument
		body, _ := io.ReadAll(os.Stdin)
		third, _ := io.ReadAll(os.NewFile(3, "three"))
		text, err := json.Marshal(seen{args, os.Environ(), body, third})
		if err == nil {
			err = os.WriteFile(args[0], text, 0o600)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	case "first": // acts as the first process of a container
		return first(args[0])
	case "quick": // leaves a child behind that ends immediately
		left := exec.Command("sleep", "0")
		_ = left.Start()
	case "exit": // prints a text and exits with a status
		fmt.Println("on stdout")
		fmt.Fprintln(os.Stderr, "the bank\n is closed")
		n, _ := strconv.Atoi(args[0])
		return n
	case "flood":
		for range 100_000 {
			fmt.Fprintln(os.Stderr, "line by line by line by line")
		}
		fmt.Fprint(os.Stderr, strings.Repeat("x", 100_000), " the end")
		return 1
	case "hang", "lead", "quiet", "leaf": // leaf is a child of the others; lead and quiet obey SIGTERM
		if what == "hang" || what == "leaf" {
			signal.Ignore(syscall.SIGTERM)
		}
		if what == "leaf" {
			_ = os.WriteFile(args[0]+".new", fmt.Appendf(nil, "%d %d", os.Getppid(), os.Getpid()), 0o600)
			_ = os.Rename(args[0]+".new", args[0])
		} else {
			leaf(args[0], what != "quiet")
		}
		<-time.After(time.Hour) // without anything to wait for, Go would report a deadlock
	case "leave": // leaves a child behind that keeps its output open
		leaf(args[0], true)
		for { // until the child exists
			if _, err := os.Stat(args[0]); err == nil {
				return 0
			}
		}
	case "obey":
		heard := make(chan os.Signal, 1)
		signal.Notify(heard, syscall.SIGTERM)
		_ = os.WriteFile(args[0], nil, 0o600)
		<-heard
		_ = os.WriteFile(args[0]+".obeyed", nil, 0o600)
	}
	return 0
}

// leaf starts a child, which keeps its parent's output open if open is true.
func leaf(path string, open bool) {
	cmd := exec.Command(os.Args[0], path)
	cmd.Env = append(os.Environ(), asChild+"=leaf")
	if open {
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
