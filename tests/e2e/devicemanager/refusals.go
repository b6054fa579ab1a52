package main

import (
	"fmt"
	"regexp"
	"sort"
	"strings"
	"time"
)

// What the kubelet says when the agent refuses, in whatever words it wraps it.
var agentSaid = regexp.MustCompile(`(?s)rpc error: code = (\w+) desc = (.*?)(?:, which is unexpected)?$`)

// A fault of the agent's own shows in words like these.
var broken = regexp.MustCompile(`Traceback|Exception|Error\(|failed: |[\n\t]|<[a-z_.]+ object`)

// By then the agent must have noticed of itself that a container has ended.
const unnoticed = 15 * time.Second

// So long, and a little longer, the agent lets a half wait for the other one.
const joinWindow = 6 * time.Second

// An admission as slow as this judges the machine and not the agent.
const slowCall, slowAdmission = 800 * time.Millisecond, 4 * time.Second

const shortestSentence, longestSentence = 20, 1500

// said returns the status code and the words of the agent in an error of the kubelet's; "" where the
// agent was not asked.
func said(message string) (code, sentence string) {
	if found := agentSaid.FindStringSubmatch(message); found != nil {
		return found[1], found[2]
	}
	return "", ""
}

// isSentence says whether a refusal can be shown to people.
func isSentence(code, sentence string) bool {
	return code == "FailedPrecondition" && len(sentence) >= shortestSentence &&
		len(sentence) <= longestSentence && strings.Contains(sentence, " ") &&
		!broken.MatchString(sentence)
}

// judgeRefusal checks that a refusal is a sentence, and that it was right.
func (r *Run) judgeRefusal(made *admission, agentKilled bool) {
	code, sentence := said(made.reason)
	switch {
	case code == "":
		r.summary.refusal("the kubelet: " + made.reason)
		return
	case agentKilled:
		r.summary.count("refused since the agent was killed")
		return
	case !isSentence(code, sentence):
		r.summary.violate(r.step, "sentence", "a refusal is no sentence (%s): %s", code, sentence)
		return
	}
	r.summary.refusal(sentence)
	if made.run.isUndecidable() {
		r.summary.count("refused where nobody could know whose a half was")
		return
	}
	failed := r.failedSlot(made)
	if failed == nil || len(made.calls) == 0 {
		return
	}
	last := made.calls[len(made.calls)-1]
	half := halfOf(last.Resource)
	free := r.roomFor(made, failed)
	// Units that the agent was asked about are those it preferred, unless NUMA nodes had a say.
	if last.Kind == callPrefer || (free.asked[half] && free.affinity == nil) {
		if place := free.place(failed.spec); place != "" {
			r.wrong(made, "refused although it fits", "GPU %s has room for %s, and the agent "+
				"says: %s", place, failed, sentence)
		}
		return
	}
	if free.wasRight(failed.spec, half, last.Units) {
		return
	}
	if !free.asked[half] && r.justEnded(last.Units) {
		r.summary.count("refused units of a pod that had just ended, unasked")
		return
	}
	r.wrong(made, "refused units that are free", "%s was given %d units of %s on %v, and "+
		"the agent says: %s", failed, len(last.Units), half, gpusOf(last.Units), sentence)
}

// justEnded says whether some of the units were had by a container that ended only now. In Allocate the
// agent must not ask the kubelet about it.
func (r *Run) justEnded(units []string) bool {
	for _, unit := range units {
		if at, ended := r.ended[unit]; ended && time.Since(at) < unnoticed {
			return true
		}
	}
	return false
}

// wrong is a violation, unless so little time has passed since a pod ended that it is to be let pass.
func (r *Run) wrong(made *admission, rule, format string, values ...any) {
	if time.Since(r.lastEnd) < r.patience {
		r.summary.count("wrongly refused soon after an ending")
		return
	}
	r.violateWith(made, rule, format, values...)
}

func (r *Run) violateWith(made *admission, rule, format string, values ...any) {
	r.summary.violate(r.step, rule, "%s\n%s", fmt.Sprintf(format, values...), describe(made.calls))
}

// describe names the kubelet's calls in words.
func describe(calls []Call) string {
	lines := make([]string, 0, len(calls))
	for _, call := range calls {
		line := fmt.Sprintf("  %s %s for %s", call.Kind, call.Resource, call.Container)
		if call.Kind == callAllocate {
			units := append([]string(nil), call.Units...)
			sort.Strings(units)
			line += fmt.Sprintf(": %d units of %v, %s", len(units), gpusOf(units), some(units))
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// failedSlot returns the first container that has not got everything.
func (r *Run) failedSlot(made *admission) *slot {
	for _, s := range made.run.slots {
		for _, half := range halves {
			if len(s.units[half]) != s.spec.count(half) {
				return s
			}
		}
	}
	return nil
}

// roomFor returns what the kubelet had for a container whose admission failed.
func (r *Run) roomFor(made *admission, failed *slot) *room {
	earlier := made.run.slots[:failed.index]
	others := append(r.book.live(), earlier...)
	after := r.healthy()
	healthy := map[string]bool{}
	for unit := range made.before {
		if after[unit] {
			healthy[unit] = true
		}
	}
	free := &room{
		gpus: r.book.gpus, healthy: healthy, held: holders(others), amidst: r.amidst,
		borrowed: borrowed(others, r.book.gpus),
		reusable: reusableBy(earlier), given: failed.units, asked: map[Half]bool{},
		affinity: r.kubelet.affinity(made.run.pod, failed, r.book.gpus),
	}
	for _, call := range made.calls {
		if call.Container == failed.spec.Name && call.Kind == callPrefer {
			free.asked[halfOf(call.Resource)] = true
		}
	}
	return free
}

// reusableBy returns the units of plain init containers that the kubelet will give to the next
// container of their pod.
func reusableBy(earlier []*slot) map[Half][]string {
	found := map[Half][]string{}
	for _, half := range halves {
		left := map[string]bool{}
		for _, s := range earlier {
			for _, unit := range s.units[half] {
				if s.spec.Kind == kindInit {
					left[unit] = true
				} else {
					delete(left, unit)
				}
			}
		}
		if len(left) > 0 {
			found[half] = sortedKeys(left)
		}
	}
	return found
}
