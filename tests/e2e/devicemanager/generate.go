package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

const (
	familyMPS = "mps"
	mostKept  = 40 // pods that a history has at once, at most
)

// Wishes say which histories are wanted.
type Wishes struct {
	Init    bool // plain init containers, whose units the kubelet reuses
	Whole   bool // core 200, 300 …
	Lone    bool // core alone, memory alone
	Ordered bool // the history says which half comes first, not Go's map order
	Slow    bool // a kubelet that starts waits some seconds for the API server to name its pods
	Kill    bool // the agent is killed
}

// generator makes a history from a seed. It never asks what came of it, so the same seed and GPUs
// give the same history whatever the agent does.
type generator struct {
	*rand.Rand
	wishes   Wishes
	families []string
	gpus     map[string][]*GPU // by family
	next     int               // pod number
	kept     []*PodSpec        // admitted, as far as the generator knows, and not ended
	load     map[string]int    // core of those, by family
	freed    []string          // names of pods that have ended
	last     *PodSpec          // whose request is repeated
}

func newGenerator(seed uint64, wishes Wishes, gpus map[string]*GPU) *generator {
	g := &generator{
		Rand: rand.New(rand.NewPCG(seed, 12)), wishes: wishes,
		gpus: map[string][]*GPU{}, load: map[string]int{}, next: 1,
	}
	// By size, since names are drawn anew for every machine.
	for _, uuid := range bySize(gpus) {
		gpu := gpus[uuid]
		if len(g.gpus[gpu.Family]) == 0 {
			g.families = append(g.families, gpu.Family)
		}
		g.gpus[gpu.Family] = append(g.gpus[gpu.Family], gpu)
	}
	return g
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

// history returns so many steps, and one that ends everything.
func (g *generator) history(count int) []Step {
	var steps []Step
	for len(steps) < count {
		steps = append(steps, g.step()...)
	}
	return append(steps, Step{Do: doEndAll})
}

// step returns the next step, with what belongs to it.
func (g *generator) step() []Step {
	draw := g.IntN(1000)
	full := len(g.kept) > mostKept || g.overloaded()
	switch {
	case full && draw < 650, draw < 200:
		return g.endOne()
	case draw < 640:
		return g.admitOne()
	case draw < 720:
		return g.restartOne()
	case draw < 770:
		return []Step{{Do: doBurst, Pods: g.pods(2 + g.IntN(5))}}
	case draw < 810:
		return g.storm()
	case draw < 870:
		return g.startOne()
	case draw < 910:
		return []Step{{Do: doList}}
	case draw < 945:
		return []Step{{Do: doWait, Millis: g.IntN(200)}}
	case draw < 960:
		return []Step{g.kubeletRestart()}
	case draw < 966 && g.wishes.Kill:
		return []Step{{Do: doAgent}}
	case draw < 969:
		g.kept, g.load = nil, map[string]int{}
		return []Step{{Do: doEndAll}}
	}
	return g.admitOne()
}

// overloaded says whether much more core is asked for than there is, so that most would be refused.
func (g *generator) overloaded() bool {
	for family, gpus := range g.gpus {
		if g.load[family] > 90*len(gpus) {
			return true
		}
	}
	return false
}

// admitOne admits a pod and mostly starts it.
func (g *generator) admitOne() []Step {
	admit := Step{Do: doAdmit, Pods: g.pods(1)}
	if g.chance(20) {
		admit.Interruption = g.interruption()
	}
	steps := []Step{admit}
	if g.chance(70) {
		steps = append(steps, Step{Do: doStart, Number: admit.Pods[0].Number})
	}
	return steps
}

// interruption ends pods while a call of the kubelet goes out and lists podresources then, or kills
// the agent at some instruction of it.
func (g *generator) interruption() *Interruption {
	in := &Interruption{Call: callAllocate, Number: 1 + g.IntN(3)}
	if g.chance(25) {
		in.Call = callPrefer
	}
	if g.wishes.Kill && g.chance(8) {
		in.Kill, in.KillMicros = true, g.IntN(15000)
		return in
	}
	in.List = g.chance(85)
	for range 1 + g.IntN(2) {
		if ended := g.take(); ended != nil {
			in.End = append(in.End, ended.Number)
		}
	}
	return in
}

// storm is a pod that fits nowhere or nearly so, made again and again as a ReplicaSet does.
func (g *generator) storm() []Step {
	pods := g.pods(1)
	for range g.IntN(5) {
		again := *pods[0]
		again.Number, again.Name = g.next, fmt.Sprintf("pod-%d", g.next)
		again.Containers = slices.Clone(again.Containers)
		g.next++
		g.keep(&again)
		pods = append(pods, &again)
	}
	var steps []Step
	for _, pod := range pods {
		steps = append(steps, Step{Do: doAdmit, Pods: []*PodSpec{pod}})
	}
	return steps
}

func (g *generator) startOne() []Step {
	if len(g.kept) == 0 {
		return g.admitOne()
	}
	pod := g.kept[g.IntN(len(g.kept))]
	return []Step{{Do: doStart, Number: pod.Number, Count: g.IntN(len(pod.Containers) + 1)}}
}

func (g *generator) restartOne() []Step {
	if len(g.kept) == 0 {
		return g.admitOne()
	}
	pod := g.kept[g.IntN(len(g.kept))]
	return []Step{{Do: doRestart, Number: pod.Number, Count: g.IntN(len(pod.Containers))}}
}

func (g *generator) endOne() []Step {
	if pod := g.take(); pod != nil {
		return []Step{{Do: doEnd, Number: pod.Number}}
	}
	return g.admitOne()
}

// kubeletRestart is quick mostly; once in a while the API server keeps the kubelet waiting for its pods
// longer than the agent waits for anything.
func (g *generator) kubeletRestart() Step {
	step := Step{Do: doKubelet, Millis: g.IntN(500), Registered: g.chance(50)}
	if g.wishes.Slow && g.chance(20) {
		step.Slow = 1000 + g.IntN(4000)
	}
	return step
}

// keep and take follow which pods there may be.
func (g *generator) keep(pod *PodSpec) {
	g.kept = append(g.kept, pod)
	for i := range pod.Containers {
		if container := &pod.Containers[i]; container.Kind != kindInit {
			g.load[container.Family] += container.Core
		}
	}
}

func (g *generator) take() *PodSpec {
	if len(g.kept) == 0 {
		return nil
	}
	i := g.IntN(len(g.kept))
	pod := g.kept[i]
	g.kept = append(g.kept[:i:i], g.kept[i+1:]...)
	for j := range pod.Containers {
		if container := &pod.Containers[j]; container.Kind != kindInit {
			g.load[container.Family] -= container.Core
		}
	}
	g.freed = append(g.freed, pod.Name)
	return pod
}
