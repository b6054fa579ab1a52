package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

const retryEvery = 200 * time.Millisecond

// start starts the containers of a pod in the kubelet's order, up to count of them in all; 0 starts
// all. A plain init container has ended when the next one starts.
func (r *Run) start(run *podRun, count int) {
	if count == 0 || count > len(run.slots) {
		count = len(run.slots)
	}
	for run.started < count && !r.summary.violated() {
		s := run.slots[run.started]
		if run.started > 0 {
			if before := run.slots[run.started-1]; before.spec.Kind == kindInit {
				r.book.setPhase(before, done)
			}
		}
		if !r.startOne(s) {
			return
		}
		run.started++
	}
}

// startAgain starts a container again that runs, with the answers of its admission.
func (r *Run) startAgain(run *podRun, index int) {
	if index < len(run.slots) && run.slots[index].phase == running {
		r.startOne(run.slots[index])
		r.summary.count("containers restarted")
	}
}

// startOne asks the kubelet for what the container is started with, in which PreStartContainer is
// called, and says whether it may start.
func (r *Run) startOne(s *slot) bool {
	container := containerOf(s.pod.pod, s.spec.Name)
	options, err := r.kubelet.manager.GetDeviceRunContainerOptions(s.pod.pod, container)
	// A kubelet tries again and again. The agent may not have noticed yet that a container has ended
	// whose memory the default needs.
	for began := time.Now(); err != nil && s.spec.isLone() && !s.pod.isUndecidable() &&
		!r.lacksDefault(s) && time.Since(began) < unnoticed; {
		r.summary.count("starts tried again")
		time.Sleep(retryEvery)
		options, err = r.kubelet.manager.GetDeviceRunContainerOptions(s.pod.pod, container)
	}
	if !s.spec.asks() {
		if err != nil {
			r.summary.violate(r.step, "start", "%s asks for nothing of ours and is refused: %v", s, err)
		}
		r.book.setPhase(s, running)
		return err == nil
	}
	if err != nil {
		r.judgeStartRefusal(s, err.Error())
		return false
	}
	if s.tangled {
		r.summary.violate(r.step, "started", "%s has files that are not its own, and may start", s)
		return false
	}
	r.summary.count("started")
	r.judgeOptions(s, options)
	if s.phase != running {
		if status, err := os.Stat(s.path); err == nil {
			s.inode = status.Sys().(*syscall.Stat_t).Ino
		}
	}
	r.book.setPhase(s, running)
	r.judgeLimits(s)
	return true
}

// judgeStartRefusal: a container that was admitted with a pair must start. What may be refused is a
// half alone, where nobody can tell whose it is or its default is not free.
func (r *Run) judgeStartRefusal(s *slot, message string) {
	code, sentence := said(message)
	if !isSentence(code, sentence) {
		r.summary.violate(r.step, "sentence", "%s may not start, and that is no sentence (%s): %s",
			s, code, message)
		return
	}
	r.summary.refusal("at the start: " + sentence)
	r.summary.count("refused at the start")
	if s.pod.isUndecidable() || r.lacksDefault(s) {
		return
	}
	r.summary.violate(r.step, "may not start", "%s was admitted and may not start: %s", s, sentence)
}

// lacksDefault says whether a container that asks for one half cannot have the default of the other.
func (r *Run) lacksDefault(s *slot) bool {
	if s.spec.Core == 0 {
		return s.spec.Family == familyMPS
	}
	if s.spec.Memory > 0 {
		return false
	}
	live, healthy := r.book.live(), r.healthy()
	held := holders(live)
	for _, uuid := range gpusOf(s.units[core]) {
		gpu := r.book.gpus[uuid]
		free := -borrowed(live, r.book.gpus)[uuid] + defaultMemory(s.spec, gpu)
		for unit := range healthy {
			if strings.HasPrefix(unit, uuid+"::m") && len(held[unit]) == 0 {
				free++
			}
		}
		if free < defaultMemory(s.spec, gpu) {
			return true
		}
	}
	return false
}

// judgeOptions checks what the kubelet merged from the two answers.
func (r *Run) judgeOptions(s *slot, options *devicemanager.DeviceRunContainerOptions) {
	if options == nil {
		r.summary.violate(r.step, "answer", "%s is started with nothing", s)
		return
	}
	path := ""
	for _, mount := range options.Mounts {
		if _, err := os.Stat(mount.HostPath); err != nil {
			r.summary.violate(r.step, "mount", "%s mounts %s, which is not there", s, mount.HostPath)
		}
		if mount.ContainerPath == limitsPath {
			path = mount.HostPath
			if !mount.ReadOnly {
				r.summary.violate(r.step, "mount", "%s can write its limits", s)
			}
		}
	}
	if path != s.path {
		r.summary.violate(r.step, "answer", "%s is started with limits in %s and was admitted with %s",
			s, path, s.path)
	}
	gpus := strings.Join(gpusOf(append(append([]string(nil), s.units[core]...),
		s.units[memory]...)), ",")
	for _, variable := range options.Envs {
		if variable.Name == "NVIDIA_VISIBLE_DEVICES" && strings.HasPrefix(variable.Value, "GPU-") &&
			!sameMembers(variable.Value, gpus) {
			r.summary.violate(r.step, "answer", "%s holds units of %s and sees %s",
				s, gpus, variable.Value)
		}
	}
}

func sameMembers(one, other string) bool {
	members := map[string]bool{}
	for _, member := range strings.Split(one, ",") {
		members[member] = true
	}
	for _, member := range strings.Split(other, ",") {
		if !members[member] {
			return false
		}
		delete(members, member)
	}
	return len(members) == 0
}

// judgeLimits checks the limits file of a container that runs against what it asked for.
func (r *Run) judgeLimits(s *slot) map[string]DeviceLimit {
	limits, err := r.reader.read(filepath.Dir(s.path))
	if err != nil {
		r.summary.violate(r.step, "limits", "those of %s cannot be read: %v", s, err)
		return nil
	}
	found := map[string]DeviceLimit{}
	for _, device := range limits.Devices {
		found[device.UUID] = device
	}
	gpus := gpusOf(append(append([]string(nil), s.units[core]...), s.units[memory]...))
	if limits.Family != s.spec.Family || len(found) != len(gpus) {
		r.summary.violate(r.step, "limits", "those of %s are of family %s and name %v, not %v",
			s, limits.Family, sortedKeys(found), gpus)
	}
	for _, uuid := range gpus {
		r.judgeDevice(s, r.book.gpus[uuid], found[uuid])
	}
	return found
}

func (r *Run) judgeDevice(s *slot, gpu *GPU, device DeviceLimit) {
	percent, units := s.spec.Core, int64(s.spec.Memory)
	if units == 0 {
		units = int64(defaultMemory(s.spec, gpu))
	}
	bytes := units * r.memoryUnit
	atMost := bytes
	if s.spec.gpus() > 1 || s.spec.Core == coreUnitsPerGPU && s.spec.Memory == 0 {
		percent, bytes = min(percent, coreUnitsPerGPU), int64(gpu.Memory)*r.memoryUnit
		atMost = bytes + r.memoryUnit - 1 // all of it, or what whole units of it are worth
	}
	if percent == 0 {
		// Memory alone runs on what others leave over: the least share there is, and a weight of 0,
		// which says that none is reserved.
		percent = leftOverPercent
		if device.Mode != elastic || device.Weight != 0 {
			r.summary.violate(r.step, "limits", "%s asks for no core and has mode %d and weight %d, not "+
				"elastic and 0", s, device.Mode, device.Weight)
		}
	}
	if device.Core != percent || device.Memory < bytes || device.Memory > atMost {
		r.summary.violate(r.step, "limits", "%s has core %d and %d bytes of memory on GPU %s, not core "+
			"%d and %d bytes", s, device.Core, device.Memory, gpu.UUID, percent, bytes)
	}
	threads, pinned := percent, bytes
	if percent == coreUnitsPerGPU { // a whole GPU is bare: no daemon holds anything there
		threads, pinned = 0, 0
	}
	if s.spec.Family == familyMPS && (device.MPSThread != threads || device.MPSPinned != pinned) {
		r.summary.violate(r.step, "limits", "%s has %d %% of the threads and %d bytes pinned under MPS, "+
			"not %d and %d", s, device.MPSThread, device.MPSPinned, threads, pinned)
	}
}
