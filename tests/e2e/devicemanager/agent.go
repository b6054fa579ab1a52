package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Agent is the node agent under judgement, as far as it is not asked through the kubelet.
type Agent struct {
	pidFile string // rewritten by whoever starts it again; "" if it must not be killed
	runDir  string
	seen    map[string]time.Time // allocations that are nobody's, since when
}

// kill ends the agent at whatever instruction it is.
func (a *Agent) kill() error {
	raw, err := os.ReadFile(a.pidFile)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// allocations returns the directories of all slices that the agent keeps.
func (a *Agent) allocations() ([]string, error) {
	found, err := filepath.Glob(filepath.Join(a.runDir, "allocations", "*", "meta.json"))
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return found, err
}

// orphans returns the directories that have been nobody's for longer than so long.
func (a *Agent) orphans(owned map[string]bool, longest time.Duration) ([]string, error) {
	found, err := a.allocations()
	if err != nil {
		return nil, err
	}
	now, present := time.Now(), map[string]bool{}
	var old []string
	for _, directory := range found {
		if owned[directory] {
			continue
		}
		present[directory] = true
		if since, known := a.seen[directory]; !known {
			a.seen[directory] = now
		} else if now.Sub(since) > longest {
			old = append(old, directory)
		}
	}
	for directory := range a.seen {
		if !present[directory] {
			delete(a.seen, directory)
		}
	}
	return old, nil
}
