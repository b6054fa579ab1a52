package main

import (
	"fmt"
	"sort"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

const (
	coreUnitsPerGPU = 100
	leftOverPercent = 1 // of a container that asks for memory alone; reserved for nobody
)

func resourceName(family string, half Half) string {
	return "nvidia.com/" + family + "-" + string(half)
}

// gpuOf returns the GPU in a unit's name, <UUID>::c<n> or <UUID>::m<n>.
func gpuOf(unit string) string {
	uuid, _, _ := strings.Cut(unit, "::")
	return uuid
}

// gpusOf returns the GPUs of units, sorted.
func gpusOf(units []string) []string {
	seen := map[string]bool{}
	for _, unit := range units {
		seen[gpuOf(unit)] = true
	}
	return sortedKeys(seen)
}

func sortedKeys[V any](found map[string]V) []string {
	keys := make([]string, 0, len(found))
	for key := range found {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// How far a container has come.
type phase int

const (
	reserved phase = iota // admitted
	running               // PreStartContainer let it pass
	done                  // a plain init container that has ended
)

// slot is one container of an admitted pod and what the kubelet gave it.
type slot struct {
	pod   *podRun
	spec  *ContainerSpec
	index int // in the pod: init containers and sidecars first
	units map[Half][]string
	phase phase
	path  string // of its limits file, once it was told
	inode uint64 // of it, once it runs

	// tangled: its halves went to different slices, or one of another container to its own, where
	// nobody could know better. It must never start.
	tangled bool
	told    []string // all limits files that it was told of: several only if it is tangled
}

func (s *slot) String() string {
	return fmt.Sprintf("container %s of pod %d (%s, %s core %d memory %d)",
		s.spec.Name, s.pod.spec.Number, s.pod.spec.Name, s.spec.Family, s.spec.Core, s.spec.Memory)
}

// mayShareWith says whether two containers may have the same units: a plain init container has ended
// before the later ones of its pod start.
func (s *slot) mayShareWith(other *slot) bool {
	if s.pod != other.pod {
		return false
	}
	first := s
	if other.index < s.index {
		first = other
	}
	return first.spec.Kind == kindInit
}

// podRun is one pod of a history.
type podRun struct {
	spec    *PodSpec
	pod     *v1.Pod
	slots   []*slot
	started int  // containers that have been started
	again   bool // may be taken for a pod that the kubelet failed between two halves just before
}

// isUndecidable says whether the agent may not know whose a half is, and must then refuse the start: a
// pod that mixes a container that asks for one half with others of its family, one that comes under
// the name of one of which a half was left, or one that was admitted too slowly.
func (p *podRun) isUndecidable() bool {
	if p.again {
		return true
	}
	asking, lone := map[string]int{}, map[string]bool{}
	for i := range p.spec.Containers {
		spec := &p.spec.Containers[i]
		if spec.asks() {
			asking[spec.Family]++
			lone[spec.Family] = lone[spec.Family] || spec.isLone()
		}
	}
	for family, count := range asking {
		if count > 1 && lone[family] {
			return true
		}
	}
	return false
}

// GPU is one GPU as its units show it.
type GPU struct {
	UUID   string `json:"uuid"`
	Family string `json:"family"`
	Core   int    `json:"core"`
	Memory int    `json:"memory"`
	NUMA   int    `json:"numa"`
}

func (g *GPU) count(half Half) int {
	if half == core {
		return g.Core
	}
	return g.Memory
}

// book is the judge's own record of who holds what. It never asks the kubelet, which may forget
// (kubernetes#137534), what it has once been told.
type book struct {
	mutex sync.Mutex
	pods  map[int]*podRun
	gpus  map[string]*GPU
	units []string // of all GPUs
}

// newBook returns an empty book for the GPUs whose units the agent offers.
func newBook(offered devicemanager.ResourceDeviceInstances) *book {
	b := &book{pods: map[int]*podRun{}, gpus: map[string]*GPU{}}
	for resource, instances := range offered {
		dash := strings.LastIndex(resource, "-")
		if dash < 0 {
			continue // of whole GPUs, which nobody here asks for; it may be offered later than this
		}
		family := strings.TrimPrefix(resource[:dash], "nvidia.com/")
		for unit, device := range instances {
			b.units = append(b.units, unit)
			gpu := b.gpus[gpuOf(unit)]
			if gpu == nil {
				gpu = &GPU{UUID: gpuOf(unit), Family: family, NUMA: -1}
				b.gpus[gpu.UUID] = gpu
			}
			for _, node := range device.GetTopology().GetNodes() {
				gpu.NUMA = int(node.GetID())
			}
			if halfOf(resource) == core {
				gpu.Core++
			} else {
				gpu.Memory++
			}
		}
	}
	sort.Strings(b.units)
	return b
}

// live returns all containers that may run now or later, pods in order.
func (b *book) live() []*slot {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	numbers := make([]int, 0, len(b.pods))
	for number := range b.pods {
		numbers = append(numbers, number)
	}
	sort.Ints(numbers)
	var slots []*slot
	for _, number := range numbers {
		slots = append(slots, b.pods[number].slots...)
	}
	return slots
}

func (b *book) enter(run *podRun) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.pods[run.spec.Number] = run
}

func (b *book) setPhase(s *slot, now phase) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	s.phase = now
}

func (b *book) remove(number int) *podRun {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	run := b.pods[number]
	delete(b.pods, number)
	return run
}

func (b *book) pod(number int) *podRun {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.pods[number]
}

// holders returns who holds each unit.
func holders(slots []*slot) map[string][]*slot {
	found := map[string][]*slot{}
	for _, s := range slots {
		for _, half := range halves {
			for _, unit := range s.units[half] {
				found[unit] = append(found[unit], s)
			}
		}
	}
	return found
}

// defaultMemory returns the memory units per GPU that a container gets which asks for core alone: the
// same share, at least one; of whole GPUs everything.
func defaultMemory(spec *ContainerSpec, gpu *GPU) int {
	if spec.Core >= coreUnitsPerGPU {
		return gpu.Memory
	}
	return max(1, gpu.Memory*spec.Core/coreUnitsPerGPU)
}

// borrowed returns how many memory units of each GPU defaults use up that the kubelet did not give.
func borrowed(slots []*slot, gpus map[string]*GPU) map[string]int {
	found := map[string]int{}
	for _, s := range slots {
		if s.spec.asks() && s.spec.Memory == 0 {
			for _, uuid := range gpusOf(s.units[core]) {
				found[uuid] += defaultMemory(s.spec, gpus[uuid])
			}
		}
	}
	return found
}

// defaults returns how many memory units of each GPU the agent must withhold: what running containers
// use up that ask for core alone. Not in pods with plain init containers, which lend theirs.
func defaults(slots []*slot, gpus map[string]*GPU) map[string]int {
	var counted []*slot
	for _, s := range slots {
		if s.phase == running && !s.pod.hasInit() {
			counted = append(counted, s)
		}
	}
	return borrowed(counted, gpus)
}

func (p *podRun) hasInit() bool {
	for _, s := range p.slots {
		if s.spec.Kind == kindInit {
			return true
		}
	}
	return false
}
