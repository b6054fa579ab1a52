package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Call is one question of the kubelet's to the agent.
type Call struct {
	Kind      string   `json:"kind"` // "prefer" or "allocate"
	Resource  string   `json:"resource"`
	Container string   `json:"container"`
	Units     []string `json:"units,omitempty"` // of an allocate

	at time.Time
}

const (
	callPrefer   = "prefer"
	callAllocate = "allocate"
)

// What the device manager logs just before it asks; at both places it holds no lock.
var askedBy = map[string]string{
	"Issuing a GetPreferredAllocation call for container": callPrefer,
	"Making allocation request for device plugin":         callAllocate,
}

// tap listens to what the kubelet's code logs. That is how the order of its calls is known, how
// something can be made to happen just before a call goes out, and how conflicts between the two
// answers of a pair are noticed by the very code that merges them.
type tap struct {
	mutex     sync.Mutex
	calls     []Call
	counts    map[string]int
	hook      func(Call, int)
	listening bool
	conflicts []string
}

// listen lets klog talk to a new tap. The verbosity is the one at which both calls are logged.
func listen() *tap {
	listener := &tap{}
	klog.SetLogger(logr.New(listener))
	return listener
}

// during runs an admission and returns the calls that were made in it. The hook is called before each
// goes out, with its number among those of its kind.
func (t *tap) during(hook func(Call, int), admit func()) []Call {
	t.mutex.Lock()
	t.calls, t.counts, t.hook, t.listening = nil, map[string]int{}, hook, true
	t.mutex.Unlock()
	admit()
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.listening = false
	return t.calls
}

// takeConflicts returns what was noticed since it was last called.
func (t *tap) takeConflicts() []string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	taken := t.conflicts
	t.conflicts = nil
	return taken
}

// Info implements logr.LogSink.
func (t *tap) Info(_ int, message string, pairs ...any) {
	kind, asks := askedBy[message]
	if !asks {
		return
	}
	call := Call{Kind: kind, at: time.Now()}
	for i := 0; i+1 < len(pairs); i += 2 {
		switch pairs[i] {
		case "resourceName":
			call.Resource, _ = pairs[i+1].(string)
		case "containerName":
			call.Container, _ = pairs[i+1].(string)
		case "devices":
			call.Units, _ = pairs[i+1].([]string)
		}
	}
	t.mutex.Lock()
	if !t.listening {
		t.mutex.Unlock()
		return
	}
	t.calls = append(t.calls, call)
	t.counts[kind]++
	hook, number := t.hook, t.counts[kind]
	t.mutex.Unlock()
	if hook != nil {
		hook(call, number)
	}
}

// Error implements logr.LogSink.
func (t *tap) Error(_ error, message string, pairs ...any) {
	if !strings.Contains(message, "conflicting") {
		return
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.conflicts = append(t.conflicts, message+" "+fmt.Sprintln(pairs...))
}

// Init implements logr.LogSink.
func (t *tap) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (t *tap) Enabled(int) bool { return true }

// WithValues implements logr.LogSink.
func (t *tap) WithValues(...any) logr.LogSink { return t }

// WithName implements logr.LogSink.
func (t *tap) WithName(string) logr.LogSink { return t }
