package main

import (
	"strings"

	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
)

// room is what the kubelet had to give when it asked for one container.
type room struct {
	gpus     map[string]*GPU
	healthy  map[string]bool    // units, before and after
	held     map[string][]*slot // by other containers
	amidst   map[string]bool    // freed within the admission
	borrowed map[string]int     // memory units a GPU that defaults use up
	reusable map[Half][]string  // of plain init containers of the same pod
	given    map[Half][]string  // of the container itself
	asked    map[Half]bool      // the agent was asked which units of this half
	affinity bitmask.BitMask    // nil if the topology manager has no wish
}

// isFree says whether the container may have a unit.
func (r *room) isFree(unit string, half Half) bool {
	if !r.healthy[unit] {
		return false
	}
	for _, reused := range r.reusable[half] {
		if reused == unit {
			return true
		}
	}
	return len(r.held[unit]) == 0
}

// free counts the units of one half on one GPU.
func (r *room) free(gpu *GPU, half Half) int {
	letter, count := map[Half]string{core: "::c", memory: "::m"}[half], 0
	for unit := range r.healthy {
		// What was freed only now came too late for what the kubelet offered.
		if strings.HasPrefix(unit, gpu.UUID+letter) && r.isFree(unit, half) && !r.amidst[unit] {
			count++
		}
	}
	return count
}

// aligned counts the units of one half that lie where the topology manager wants them.
func (r *room) aligned(family string, half Half) int {
	count := 0
	for _, gpu := range r.gpus {
		if gpu.Family == family && r.affinity.IsSet(gpu.NUMA) {
			count += r.free(gpu, half)
		}
	}
	return count
}

// place returns a GPU that could hold what a container asks for, "" if a refusal was right: there is
// none, or the kubelet had left the agent no choice.
func (r *room) place(spec *ContainerSpec) string {
	if spec.gpus() > 1 || spec.Core > coreUnitsPerGPU {
		return r.placeWhole(spec)
	}
	for _, uuid := range sortedKeys(r.gpus) {
		gpu := r.gpus[uuid]
		if gpu.Family == spec.Family && r.holds(gpu, spec) {
			return uuid
		}
	}
	return ""
}

func (r *room) holds(gpu *GPU, spec *ContainerSpec) bool {
	wanted := map[Half]int{core: spec.Core, memory: spec.Memory}
	if spec.Memory == 0 {
		wanted[memory] = defaultMemory(spec, gpu)
	}
	for _, half := range halves {
		free := r.free(gpu, half)
		if half == memory {
			free -= r.borrowed[gpu.UUID]
		}
		if free < wanted[half] {
			return false
		}
		// Units that the kubelet takes of itself bind the container to their GPU.
		bound := gpusOf(r.reusable[half])
		if spec.count(half) > 0 && !r.asked[half] && len(r.given[half]) > 0 {
			bound = gpusOf(r.given[half])
		}
		if len(bound) > 1 || (len(bound) == 1 && bound[0] != gpu.UUID) {
			return false
		}
		if spec.count(half) > 0 && r.affinity != nil {
			// Where all that is aligned is needed, the kubelet takes it without asking.
			if !r.affinity.IsSet(gpu.NUMA) || spec.count(half) >= r.aligned(spec.Family, half) {
				return false
			}
		}
	}
	return true
}

// placeWhole looks for whole GPUs, of one size where memory was asked for too.
func (r *room) placeWhole(spec *ContainerSpec) string {
	if spec.Core%coreUnitsPerGPU != 0 || len(r.reusable) > 0 || r.affinity != nil {
		return ""
	}
	bySize := map[int]int{}
	for _, gpu := range r.gpus {
		if gpu.Family == spec.Family && r.borrowed[gpu.UUID] == 0 &&
			r.free(gpu, core) == gpu.Core && r.free(gpu, memory) == gpu.Memory {
			bySize[gpu.Memory]++
		}
	}
	for size, count := range bySize {
		if count >= spec.gpus() && (spec.Memory == 0 || spec.Memory == spec.gpus()*size) {
			return "several"
		}
	}
	return ""
}

// wasRight says whether an Allocate of units had to be refused.
func (r *room) wasRight(spec *ContainerSpec, half Half, units []string) bool {
	gpus := gpusOf(units)
	if len(gpus) != spec.gpus() || spec.gpus() > 1 {
		return true
	}
	if other := gpusOf(r.given[half.other()]); len(other) > 0 && other[0] != gpus[0] {
		return true
	}
	for _, unit := range units {
		if !r.isFree(unit, half) {
			return true
		}
	}
	return false
}
