package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
)

// Run is one history and its judge.
type Run struct {
	kubelet    *Kubelet
	tap        *tap
	agent      *Agent
	reader     *reader
	book       *book
	summary    *Summary
	memoryUnit int64
	settle     time.Duration // by then the agent must have given back what ended
	patience   time.Duration // so long after an ending a wrong refusal is let pass

	step     int
	lastEnd  time.Time                       // of a pod, by its end or its refusal
	ended    map[string]time.Time            // units of those
	halfDone map[string]time.Time            // names of pods that the kubelet failed between two halves
	slowAt   time.Time                       // when an admission was slow, see wasSlow
	amidst   map[string]bool                 // units of pods that ended within the present admission
	admitted map[int]bool                    // pod numbers that were used
	first    map[types.UID]map[string]Half   // see orderedProvider
	families map[types.UID]map[string]string // of the same containers
	endedAt  map[string]map[time.Time]int    // memory units of defaults that ended, by GPU
	lastUnit sync.Mutex                      // guards endedAt
}

// order implements Kubelet.order.
func (r *Run) order(pod *v1.Pod, container string) v1.ResourceName {
	first := r.first[pod.UID][container]
	if first == "" {
		return ""
	}
	return v1.ResourceName(resourceName(r.families[pod.UID][container], first))
}

// play runs a history to its end or to the first violation.
func (r *Run) play(steps []Step) error {
	for i := range steps {
		r.step = i
		began := time.Now()
		if err := r.do(&steps[i]); err != nil {
			return fmt.Errorf("step %d (%s): %w", i, steps[i].Do, err)
		}
		r.summary.spend(steps[i].Do, time.Since(began))
		r.check()
		r.summary.Steps++
		if r.summary.violated() {
			return nil
		}
	}
	return nil
}

func (r *Run) do(step *Step) error {
	r.summary.count("step " + step.Do)
	switch step.Do {
	case doAdmit:
		return r.admitAlone(step.Pods[0], step.Interruption)
	case doBurst:
		return r.burst(step.Pods)
	case doStart:
		if run := r.book.pod(step.Number); run != nil {
			r.start(run, step.Count)
		}
	case doRestart:
		if run := r.book.pod(step.Number); run != nil {
			r.startAgain(run, step.Count)
		}
	case doEnd:
		r.end(step.Number)
	case doEndAll:
		return r.endAll()
	case doList:
		r.list()
	case doWait:
		time.Sleep(time.Duration(step.Millis) * time.Millisecond)
	case doKubelet:
		return r.restartKubelet(step)
	case doAgent:
		return r.killAgent()
	default:
		return fmt.Errorf("no such step")
	}
	return nil
}

// end ends a pod: its containers are gone and the kubelet does not count it any more.
func (r *Run) end(number int) {
	run := r.book.remove(number)
	if run == nil {
		return
	}
	r.noteEnded(run)
	r.noteUnits(run)
	r.kubelet.pods.end(run.pod.UID)
	r.kubelet.removeDirectory(run.pod.UID)
	r.summary.count("ended")
}

// noteEnded remembers what the agent will give back to the kubelet only when it has noticed.
func (r *Run) noteEnded(run *podRun) {
	r.lastUnit.Lock()
	defer r.lastUnit.Unlock()
	for uuid, count := range borrowed(run.slots, r.book.gpus) {
		if r.endedAt[uuid] == nil {
			r.endedAt[uuid] = map[time.Time]int{}
		}
		r.endedAt[uuid][time.Now()] += count
	}
}

// noteUnits remembers when units became free.
func (r *Run) noteUnits(run *podRun) {
	r.lastEnd = time.Now()
	for _, s := range run.slots {
		for _, half := range halves {
			for _, unit := range s.units[half] {
				r.ended[unit], r.amidst[unit] = r.lastEnd, true
			}
		}
	}
}

// endAll ends every pod and waits until the agent keeps nothing and all units are offered again.
func (r *Run) endAll() error {
	for _, s := range r.book.live() {
		r.end(s.pod.spec.Number)
	}
	began := time.Now()
	for {
		left, err := r.agent.allocations()
		if err != nil {
			return err
		}
		unhealthy := r.unhealthy()
		if len(left) == 0 && len(unhealthy) == 0 {
			r.summary.slowest("all freed", time.Since(began).Milliseconds())
			return nil
		}
		if time.Since(began) > r.settle {
			r.summary.violate(r.step, "leak", "%s after the last pod ended the agent keeps %d slices "+
				"(%v) and withholds %d units (%v)", r.settle, len(left), some(left), len(unhealthy),
				some(unhealthy))
			return nil
		}
		time.Sleep(20 * pollEvery)
	}
}

// list asks podresources as another reader of the node does; the kubelet may refuse by its rate limit.
func (r *Run) list() {
	socket := filepath.Join(r.kubelet.directory, "pod-resources", "kubelet.sock")
	connection, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.summary.count("lists failed")
		return
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = podresourcesv1.NewPodResourcesListerClient(connection).List(
		ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		r.summary.count("lists refused")
		return
	}
	r.summary.count("lists")
}

// restartKubelet ends the kubelet, starts another one on its directory and admits all pods again, as a
// kubelet does: it keeps a container that runs, and fails a pod that it cannot admit.
func (r *Run) restartKubelet(step *Step) error {
	if err := r.kubelet.stop(); err != nil {
		return err
	}
	time.Sleep(time.Duration(step.Millis) * time.Millisecond)
	known := r.kubelet.pods.takeAll()
	containers := containermap.NewContainerMap()
	for _, s := range r.book.live() {
		if s.phase == running {
			containers.Add(string(s.pod.pod.UID), s.spec.Name,
				fmt.Sprintf("%d-%s", s.pod.spec.Number, s.spec.Name))
		}
	}
	if err := r.kubelet.start(containers); err != nil {
		return err
	}
	began := time.Now()
	if step.Registered {
		if _, err := r.kubelet.waitRegistered(); err != nil {
			r.summary.violate(r.step, "not registered", "%v", err)
			return nil
		}
		r.summary.slowest("registered again", time.Since(began).Milliseconds())
	}
	time.Sleep(time.Duration(step.Slow) * time.Millisecond)
	for _, pod := range known {
		r.kubelet.pods.add(pod)
		result := r.kubelet.admit(pod)
		if result.Admit {
			continue
		}
		r.summary.count("failed at a kubelet's restart")
		if step.Registered && !r.summary.violated() {
			r.summary.refusal("at a kubelet's restart: " + result.Message)
		}
		r.forget(pod)
	}
	r.kubelet.ready.Store(true)
	if _, err := r.kubelet.waitRegistered(); err != nil {
		r.summary.violate(r.step, "not registered", "%v", err)
	}
	if step.Slow == 0 {
		r.summary.slowest("registered again", time.Since(began).Milliseconds())
	}
	return nil
}

// forget ends a pod that the kubelet has failed.
func (r *Run) forget(pod *v1.Pod) {
	for _, s := range r.book.live() {
		if s.pod.pod.UID == pod.UID {
			r.end(s.pod.spec.Number)
			return
		}
	}
	r.kubelet.pods.end(pod.UID)
}

// killAgent kills the agent and waits until whoever watches over it has brought it back.
func (r *Run) killAgent() error {
	if r.agent.pidFile == "" {
		return nil
	}
	if err := r.agent.kill(); err != nil {
		return err
	}
	return r.awaitAgent()
}

func (r *Run) awaitAgent() error {
	r.summary.count("agents killed")
	if err := r.kubelet.waitLost(); err != nil {
		return err
	}
	took, err := r.kubelet.waitRegistered()
	if err != nil {
		r.summary.violate(r.step, "not registered", "after a kill: %v", err)
		return nil
	}
	r.summary.slowest("agent back", took.Milliseconds())
	return nil
}

// some names a few of many.
func some(names []string) []string {
	if len(names) > 4 {
		return append(append([]string(nil), names[:4]...), "…")
	}
	return names
}
