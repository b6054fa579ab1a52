package main

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// judge looks at what came of an admission and enters it into the book, or ends the pod that failed.
// It returns the pod if it was admitted.
func (r *Run) judge(made *admission, agentKilled bool) *podRun {
	for _, s := range made.run.slots {
		r.countOrder(made.calls, s)
	}
	if made.reason == "" {
		r.judgeAdmitted(made)
		return made.run
	}
	r.summary.count("refused")
	r.judgeRefusal(made, agentKilled)
	r.noteUnits(made.run)
	r.kubelet.pods.end(made.run.pod.UID)
	if made.isHalfDone() {
		r.noteHalfDone(made.run.spec)
	}
	return nil
}

func (r *Run) judgeAdmitted(made *admission) {
	run := made.run
	r.summary.count("admitted")
	live := append(r.book.live(), run.slots...)
	held := holders(live)
	for _, s := range run.slots {
		r.judgeUnits(s, held)
	}
	r.judgeAnswers(run)
	r.untangle(run)
	r.book.enter(run)
	if err := r.kubelet.makeDirectory(run.pod.UID); err != nil {
		r.summary.violate(r.step, "files", "the pod's directory cannot be made: %v", err)
	}
	// How far the kubelet has forgotten units that it has given (kubernetes#137534).
	counts := r.kubelet.countAllocated(run.pod)
	for _, resource := range r.kubelet.resources {
		given := map[string]bool{}
		for unit, slots := range held {
			half := slots[0].half(unit)
			if resourceName(slots[0].spec.Family, half) == resource {
				given[unit] = true
			}
		}
		if forgotten := len(given) - counts[resource]; forgotten > 0 {
			r.summary.count("times the kubelet had forgotten units")
		}
	}
}

func (s *slot) half(unit string) Half {
	if strings.Contains(unit, "::c") {
		return core
	}
	return memory
}

// judgeUnits checks what the kubelet has recorded for one container: number, place, and that nobody
// else has it.
func (r *Run) judgeUnits(s *slot, held map[string][]*slot) {
	for _, half := range halves {
		if given := len(s.units[half]); given != s.spec.count(half) {
			r.summary.violate(r.step, "count", "%s has %d units of %s", s, given, half)
		}
		for _, unit := range s.units[half] {
			for _, other := range held[unit] {
				if other == s {
					continue
				}
				if !s.mayShareWith(other) {
					r.summary.violate(r.step, "given twice", "unit %s is given to %s and to %s",
						unit, s, other)
				} else if s.index > other.index {
					r.summary.count("units reused")
				}
			}
		}
	}
	gpus := gpusOf(append(append([]string(nil), s.units[core]...), s.units[memory]...))
	if s.spec.asks() && len(gpus) != s.spec.gpus() && !s.tangle() {
		r.summary.violate(r.step, "pair split", "%s has core on %v and memory on %v",
			s, gpusOf(s.units[core]), gpusOf(s.units[memory]))
	}
	for _, uuid := range gpus {
		if gpu := r.book.gpus[uuid]; gpu == nil || gpu.Family != s.spec.Family {
			r.summary.violate(r.step, "family", "%s has units of GPU %s, which is not of it", s, uuid)
		}
	}
}

// judgeAnswers checks the two answers of every container of a pod against each other and remembers
// where its limits are.
func (r *Run) judgeAnswers(run *podRun) {
	told, err := r.kubelet.answersFor(run.pod)
	if err != nil {
		r.summary.violate(r.step, "checkpoint", "the kubelet's checkpoint cannot be read: %v", err)
		return
	}
	for _, s := range run.slots {
		if !s.spec.asks() {
			continue
		}
		hosts, conflicts := merged(told[s.spec.Name])
		for _, resource := range sortedKeys(told[s.spec.Name]) {
			for _, mount := range told[s.spec.Name][resource].Mounts {
				if mount.ContainerPath == limitsPath {
					s.told = append(s.told, mount.HostPath)
				}
			}
		}
		if len(conflicts) > 0 && !s.tangle() {
			r.summary.violate(r.step, "conflict", "the answers for %s contradict each other: %s",
				s, strings.Join(conflicts, "; "))
		}
		s.path = hosts[limitsPath]
		if s.path == "" {
			r.summary.violate(r.step, "answer", "%s is told of no %s", s, limitsPath)
		}
	}
}

// tangle notes that a container was mixed up with another one, and says whether that may be.
func (s *slot) tangle() bool {
	s.tangled = s.pod.isUndecidable()
	return s.tangled
}

// untangle looks which containers of a pod have limits in common that they must not have.
func (r *Run) untangle(run *podRun) {
	owner := map[string]*slot{}
	for _, s := range run.slots {
		for _, path := range s.told {
			other := owner[path]
			if other != nil && other != s && !s.mayShareWith(other) && s.tangle() {
				other.tangled = true
			}
			owner[path] = s
		}
	}
}

// noteHalfDone remembers the names under which another pod may be taken for one that was there when
// the half was given: podresources tells no UIDs, only names and units.
func (r *Run) noteHalfDone(failed *PodSpec) {
	now := time.Now()
	r.halfDone[failed.Name] = now
	for _, pod := range r.kubelet.pods.GetActivePods() {
		if !r.isListedWithUnits(pod.UID) {
			r.halfDone[pod.Name] = now
		}
	}
}

// isListedWithUnits says whether podresources shows units of a live pod: not of plain init containers.
func (r *Run) isListedWithUnits(uid types.UID) bool {
	for _, s := range r.book.live() {
		if s.pod.pod.UID == uid && s.spec.asks() && s.spec.Kind != kindInit {
			return true
		}
	}
	return false
}

// isHalfDone says whether the kubelet failed the pod by itself while one half of a container was
// given: the agent is told nothing of that.
func (made *admission) isHalfDone() bool {
	if code, _ := said(made.reason); code != "" {
		return false
	}
	for _, s := range made.run.slots {
		if (len(s.units[core]) > 0) != (len(s.units[memory]) > 0) {
			return true
		}
	}
	return false
}

// countOrder notes which half was asked for first, and what the kubelet decided without asking. The
// order goes into the history, so that it plays again as it was.
func (r *Run) countOrder(calls []Call, s *slot) {
	if s.spec.isLone() || !s.spec.asks() {
		return
	}
	asked, first := map[Half]bool{}, Half("")
	for _, call := range calls {
		if call.Container != s.spec.Name {
			continue
		}
		half := halfOf(call.Resource)
		if first == "" {
			first = half
		}
		if call.Kind == callPrefer {
			asked[half] = true
		} else if !asked[half] {
			r.summary.count("halves given without asking for a preference")
		}
	}
	if first != "" {
		r.summary.count("pairs, " + string(first) + " first")
		s.spec.First = first
	}
}

func halfOf(resource string) Half {
	if strings.HasSuffix(resource, "-"+string(core)) {
		return core
	}
	return memory
}
