package main

import (
	"fmt"
	"slices"
)

// bySize orders GPUs so that the same machine gives the same order, whatever its GPUs are called.
func bySize(gpus map[string]*GPU) []string {
	uuids := sortedKeys(gpus)
	slices.SortStableFunc(uuids, func(one, other string) int {
		a, b := gpus[one], gpus[other]
		if a.Family != b.Family {
			if a.Family < b.Family {
				return -1
			}
			return 1
		}
		return a.Memory - b.Memory
	})
	return uuids
}

// pods returns so many new pods, kept.
func (g *generator) pods(count int) []*PodSpec {
	made := make([]*PodSpec, 0, count)
	for range count {
		made = append(made, g.pod())
	}
	return made
}

// pod draws one pod: often the last one's request once more, as replicas have it.
func (g *generator) pod() *PodSpec {
	pod := &PodSpec{Number: g.next, Name: fmt.Sprintf("pod-%d", g.next)}
	g.next++
	if len(g.freed) > 0 && g.chance(15) {
		// As a StatefulSet does: the name of one that has ended.
		i := g.IntN(len(g.freed))
		pod.Name = g.freed[i]
		g.freed = append(g.freed[:i:i], g.freed[i+1:]...)
	}
	if g.last != nil && g.chance(25) {
		pod.Containers = slices.Clone(g.last.Containers)
	} else {
		pod.Containers = g.containers()
	}
	g.last = pod
	g.keep(pod)
	return pod
}

func (g *generator) containers() []ContainerSpec {
	family := g.families[g.IntN(len(g.families))]
	var containers []ContainerSpec
	add := func(kind string) {
		// A few pods have slices of both families, each container of one.
		if g.chance(5) {
			family = g.families[g.IntN(len(g.families))]
		}
		spec := g.request(family)
		spec.Kind, spec.Name = kind, fmt.Sprintf("%s-%d", kind, len(containers))
		containers = append(containers, spec)
	}
	if g.wishes.Init && g.chance(35) {
		for range 1 + g.IntN(2) {
			add(kindInit)
		}
	}
	if g.chance(15) {
		add(kindSidecar)
		if g.wishes.Init && g.chance(30) {
			add(kindInit)
		}
	}
	for range []int{1, 1, 1, 2, 2, 3}[g.IntN(6)] {
		add(kindApp)
	}
	return containers
}

// request draws what one container asks for.
func (g *generator) request(family string) ContainerSpec {
	gpus := g.gpus[family]
	gpu := gpus[g.IntN(len(gpus))]
	spec := ContainerSpec{Family: family}
	switch draw := g.IntN(100); {
	case draw < 8:
		return ContainerSpec{} // nothing of ours, like most sidecars
	case draw < 50:
		spec.Core = []int{5, 10, 20, 25, 30, 40, 50, 60, 75, 100}[g.IntN(10)]
		spec.Memory = max(1, gpu.Memory*spec.Core/coreUnitsPerGPU)
	case draw < 90:
		spec.Core = 1 + g.IntN(40)
		spec.Memory = 1 + g.IntN(max(1, gpu.Memory/2))
	case draw < 95: // much of one, little of the other
		spec.Core, spec.Memory = 1+g.IntN(5), 1+g.IntN(gpu.Memory)
		if g.chance(50) {
			spec.Core, spec.Memory = 60+g.IntN(41), 1+g.IntN(2)
		}
	default: // fits nowhere, or on the largest GPU alone
		spec.Core, spec.Memory = 101+g.IntN(98), 1
		if g.chance(50) {
			spec.Core, spec.Memory = 10, gpu.Memory+g.IntN(gpu.Memory)
		}
	}
	if g.wishes.Lone && g.chance(20) {
		if g.chance(60) || family == familyMPS && g.chance(90) {
			spec.Memory = 0
		} else {
			spec.Core = 0
		}
		spec.Zero = g.chance(25)
	}
	if g.wishes.Whole && family != familyMPS && g.chance(6) {
		count := 1 + g.IntN(len(gpus))
		spec.Core, spec.Memory, spec.Zero = count*coreUnitsPerGPU, 0, false
		if g.chance(40) {
			spec.Memory = count * gpu.Memory
		}
	}
	if g.wishes.Ordered {
		spec.First = halves[g.IntN(len(halves))]
	}
	return spec
}
