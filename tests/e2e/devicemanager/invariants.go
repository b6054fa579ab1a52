package main

import (
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"
)

// check looks at the whole node after a step.
func (r *Run) check() {
	for _, conflict := range r.tap.takeConflicts() {
		r.summary.violate(r.step, "conflict", "the kubelet merges answers and says: %s", conflict)
	}
	live := r.book.live()
	r.checkRecord(live)
	r.checkHealth(live)
	r.checkFiles(live)
	r.checkSums(live)
	r.checkOrphans(live)
}

// checkRecord: what the kubelet has on record is what it gave.
func (r *Run) checkRecord(live []*slot) {
	for _, s := range live {
		units := r.kubelet.unitsOf(s.pod.pod, s.spec.Name, s.spec.Family)
		for _, half := range halves {
			if !sameMembers(joined(units[half]), joined(s.units[half])) {
				r.summary.violate(r.step, "record", "the kubelet's record of %s has changed", s)
			}
		}
	}
}

func joined(units []string) string { return strings.Join(units, ",") }

// healthy returns all units that the kubelet may give or has given.
func (r *Run) healthy() map[string]bool {
	found := map[string]bool{}
	for _, instances := range r.kubelet.manager.GetAllocatableDevices() {
		for unit := range instances {
			found[unit] = true
		}
	}
	return found
}

// unhealthy returns the units that the agent withholds.
func (r *Run) unhealthy() []string {
	healthy := r.healthy()
	var found []string
	for _, unit := range r.book.units {
		if !healthy[unit] {
			found = append(found, unit)
		}
	}
	return found
}

// checkHealth: no unit that a container holds is withheld, since the kubelet would then not admit its
// pod again; and no more are withheld than defaults use up.
func (r *Run) checkHealth(live []*slot) {
	held, count := holders(live), map[string]int{}
	for _, unit := range r.unhealthy() {
		if slots := held[unit]; len(slots) > 0 {
			r.summary.violate(r.step, "held and withheld", "unit %s of %s is unhealthy", unit, slots[0])
		}
		if strings.Contains(unit, "::c") {
			r.summary.violate(r.step, "withheld", "core unit %s is unhealthy", unit)
		}
		count[gpuOf(unit)]++
	}
	allowed := borrowed(live, r.book.gpus)
	for uuid, units := range defaults(live, r.book.gpus) {
		r.awaitWithheld(uuid, units, count[uuid])
	}
	r.lastUnit.Lock()
	defer r.lastUnit.Unlock()
	for uuid, ended := range r.endedAt {
		for at, units := range ended {
			if time.Since(at) > r.settle {
				delete(ended, at)
			} else {
				allowed[uuid] += units
			}
		}
	}
	for uuid, withheld := range count {
		if withheld > allowed[uuid] {
			r.summary.violate(r.step, "withheld", "%d memory units of GPU %s are unhealthy, and defaults "+
				"use up %d", withheld, uuid, allowed[uuid])
		}
	}
}

// awaitWithheld waits for the agent's list that says what the defaults of running containers use up.
func (r *Run) awaitWithheld(uuid string, units, count int) {
	for began := time.Now(); count < units; time.Sleep(pollEvery) {
		if time.Since(began) > r.settle {
			r.summary.violate(r.step, "offered", "%d memory units of GPU %s are unhealthy, and defaults of "+
				"running containers use up %d", count, uuid, units)
			return
		}
		count = 0
		for _, unit := range r.unhealthy() {
			if gpuOf(unit) == uuid {
				count++
			}
		}
	}
}

// checkFiles: every container that may run has limits of its own, and they stay the same file.
func (r *Run) checkFiles(live []*slot) {
	owner := map[string]*slot{}
	for _, s := range live {
		if s.path == "" || s.phase == done || s.tangled {
			continue
		}
		status, err := os.Stat(s.path)
		if err != nil {
			r.summary.violate(r.step, "files", "the limits of %s are gone: %v", s, err)
			continue
		}
		if inode := status.Sys().(*syscall.Stat_t).Ino; s.phase == running && inode != s.inode {
			r.summary.violate(r.step, "files", "the limits of %s were replaced while it runs", s)
		}
		if other := owner[s.path]; other != nil && !s.mayShareWith(other) {
			r.summary.violate(r.step, "files", "%s and %s have the same limits", s, other)
		}
		owner[s.path] = s
	}
}

// checkSums: the limits of what runs are what was asked for, and add up to no more than each GPU has.
func (r *Run) checkSums(live []*slot) {
	percent, bytes := map[string]int{}, map[string]int64{}
	for _, s := range live {
		if s.phase != running || !s.spec.asks() {
			continue
		}
		for uuid, device := range r.judgeLimits(s) {
			if s.spec.Core > 0 {
				percent[uuid] += device.Core
			}
			bytes[uuid] += device.Memory
		}
	}
	for _, uuid := range sortedKeys(r.book.gpus) {
		gpu := r.book.gpus[uuid]
		most := (int64(gpu.Memory)+1)*r.memoryUnit - 1
		if percent[uuid] > gpu.Core || bytes[uuid] > most {
			r.summary.violate(r.step, "overcommitted", "what runs on GPU %s may use core %d and %d bytes, "+
				"of %d and %d", uuid, percent[uuid], bytes[uuid], gpu.Core, most)
		}
	}
}

// checkOrphans: what belongs to no container is gone some seconds later.
func (r *Run) checkOrphans(live []*slot) {
	owned := map[string]bool{}
	for _, s := range live {
		for _, path := range s.told {
			owned[filepath.Dir(path)] = true
		}
	}
	left, err := r.agent.orphans(owned, r.settle)
	if err != nil {
		r.summary.violate(r.step, "files", "the run directory cannot be listed: %v", err)
	}
	if len(left) > 0 {
		sort.Strings(left)
		r.summary.violate(r.step, "leak", "%d slices have been nobody's for %s: %v",
			len(left), r.settle, some(left))
	}
}
