#!/usr/bin/env bash
# Writes a workspace into bin/worlds, in which sarama can run in virtual time. sarama holds mutexes while it waits for an
# answer, and a goroutine that waits for a mutex stops the time of a testing/synctest bubble. So this copies the module and
# replaces its mutexes by a lock on which goroutines wait as synctest wishes.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=$(go list -m -f '{{.Version}}' github.com/IBM/sarama)
out=bin/worlds
if [ "$(cat $out/version 2>/dev/null || true)" != "$version" ]; then
  rm -rf $out/sarama
  mkdir -p $out
  cp -r "$(go list -m -f '{{.Dir}}' github.com/IBM/sarama)" $out/sarama
  chmod -R u+w $out/sarama
  rm -rf $out/sarama/*_test.go $out/sarama/mock*
  sed -i -E 's/sync\.(RW)?Mutex\b/virtualMutex/' $out/sarama/*.go
  if grep -rqE 'sync\.(RW)?Mutex' $out/sarama/*.go; then echo "two mutexes on one line of sarama"; exit 1; fi
  for file in $(grep -lw virtualMutex $out/sarama/*.go); do
    grep -q 'sync\.' "$file" || sed -i '/^\t"sync"$/d' "$file"
  done
  cat >$out/sarama/virtual_mutex.go <<'GO'
package sarama

import "sync"

// virtualMutex is a sync.RWMutex on which goroutines wait durably: on channels. Those who wait get it in order. Without that,
// fetches would starve heartbeats.
type virtualMutex struct {
	mu      sync.Mutex
	writer  bool
	readers int
	waiting []waiter
}

type waiter struct {
	writes bool
	turn   chan struct{}
}

func (l *virtualMutex) lock(writes, waits bool) bool {
	l.mu.Lock()
	// A reader does not wait behind writers: sarama reads within a read.
	if !l.writer && (l.readers == 0 && len(l.waiting) == 0 || !writes) {
		l.take(writes)
		l.mu.Unlock()
		return true
	}
	if !waits {
		l.mu.Unlock()
		return false
	}
	w := waiter{writes, make(chan struct{})}
	l.waiting = append(l.waiting, w)
	l.mu.Unlock()
	<-w.turn
	return true
}

func (l *virtualMutex) take(writes bool) {
	if writes {
		l.writer = true
	} else {
		l.readers++
	}
}

func (l *virtualMutex) unlock(writes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if writes {
		l.writer = false
	} else {
		l.readers--
	}
	for len(l.waiting) > 0 && !l.writer && (l.readers == 0 || !l.waiting[0].writes) {
		l.take(l.waiting[0].writes)
		close(l.waiting[0].turn)
		l.waiting = l.waiting[1:]
	}
}

func (l *virtualMutex) Lock()         { l.lock(true, true) }
func (l *virtualMutex) TryLock() bool { return l.lock(true, false) }
func (l *virtualMutex) Unlock()       { l.unlock(true) }
func (l *virtualMutex) RLock()        { l.lock(false, true) }
func (l *virtualMutex) RUnlock()      { l.unlock(false) }
GO
  echo "$version" >$out/version
fi
{ sed -E 's|^(\t)(\..*)$|\1../../\2|' go.work; printf '\nreplace github.com/IBM/sarama => ./sarama\n'; } >$out/go.work
cp go.work.sum $out/go.work.sum
