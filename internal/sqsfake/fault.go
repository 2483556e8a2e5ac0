package sqsfake

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"syscall"
	"time"
)

// Fault is what happens to a request. Its zero value changes nothing.
type Fault struct {
	// Delay is how long the request takes to reach the server.
	Delay time.Duration
	// Carried means that the request is carried out although its answer says otherwise, or is lost. A client that gives
	// up during Delay does not prevent it.
	Carried bool
	// AnswerDelay is how long the answer takes to reach the client.
	AnswerDelay time.Duration
	// Status, Code and Message are the answer, if Status is set.
	Status  int
	Code    string
	Message string
	// Err is what the client gets instead of an answer.
	Err error
	// Entry returns the code with which an entry of a batch fails, or "". With Carried, the entry is carried out
	// nevertheless. It must not call the server.
	Entry func(entry map[string]any) (code string)
}

func (f *Fault) fails() bool { return f.Err != nil || f.Status != 0 }

// ErrReset is the end of a connection without an answer.
var ErrReset = errors.New("connection reset by peer")

// Throttled is how SQS refuses too many requests.
func Throttled() *Fault { return &Fault{Status: http.StatusBadRequest, Code: "RequestThrottled"} }

// Denied is how SQS refuses a request for which the caller has no right.
func Denied() *Fault { return &Fault{Status: http.StatusBadRequest, Code: "AccessDeniedException"} }

// ServerError is an answer with status 500. Nothing is carried out.
func ServerError() *Fault {
	return &Fault{Status: http.StatusInternalServerError, Code: "InternalFailure"}
}

// LostAnswer carries out the request. The client gets no answer.
func LostAnswer() *Fault { return &Fault{Err: ErrReset, Carried: true} }

// Reset ends the connection before the request is carried out.
func Reset() *Fault { return &Fault{Err: ErrReset} }

// ConnectionRefused is what a client sees while no server listens.
func ConnectionRefused() *Fault {
	return &Fault{Err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}}
}

// FailedEntries makes those entries of a batch fail for which fails reports true.
func FailedEntries(code string, fails func(entry map[string]any) bool) *Fault {
	return &Fault{Entry: func(e map[string]any) string {
		if fails(e) {
			return code
		}
		return ""
	}}
}

// Inject calls fault for each request, one at a time, until stop is called. The request gets the fault that it returns. If
// there are several functions, the first that returns a fault counts. A function may call methods of the server, except
// Inject and stop, and must send no requests.
func (s *Server) Inject(fault func(*Call) *Fault) (stop func()) {
	s.injecting.Lock()
	defer s.injecting.Unlock()
	own := &fault
	s.injected = append(s.injected, own)
	return func() {
		s.injecting.Lock()
		defer s.injecting.Unlock()
		s.injected = slices.DeleteFunc(s.injected, func(other *func(*Call) *Fault) bool { return other == own })
	}
}

// Deny refuses the action on the queue, as a policy does, until allow is called. An empty name means all.
func (s *Server) Deny(action, queue string) (allow func()) {
	return s.Inject(func(c *Call) *Fault {
		if (action == "" || c.Action == action) && (queue == "" || c.Queue == queue) {
			return Denied()
		}
		return nil
	})
}

func (s *Server) faultOf(c *Call) *Fault {
	s.injecting.Lock()
	defer s.injecting.Unlock()
	for _, fault := range s.injected {
		if f := (*fault)(c); f != nil {
			return f
		}
	}
	return &Fault{}
}
