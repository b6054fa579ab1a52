package main

import (
	"strconv"
	"sync"
	"time"
)

// admitAlone admits one pod; the interruption happens meanwhile.
func (r *Run) admitAlone(spec *PodSpec, in *Interruption) error {
	var killed chan error
	var hook func(Call, int)
	if in != nil {
		hook = func(call Call, number int) {
			if call.Kind != in.Call || number != in.Number {
				return
			}
			r.summary.count("interruptions")
			for _, other := range in.End {
				r.end(other)
			}
			if in.List {
				r.list()
			}
			if in.Kill && r.agent.pidFile != "" {
				killed = make(chan error, 1)
				go func() {
					time.Sleep(time.Duration(in.KillMicros) * time.Microsecond)
					killed <- r.agent.kill()
				}()
			}
		}
	}
	admission, err := r.admit(spec, hook)
	if err != nil || admission == nil {
		return err
	}
	if killed != nil {
		if err := <-killed; err != nil {
			return err
		}
		if err := r.awaitAgent(); err != nil {
			return err
		}
	}
	r.judge(admission, killed != nil)
	return nil
}

// burst admits pods one after the other and starts each while the next are admitted, as the pod
// workers of a kubelet do.
func (r *Run) burst(specs []*PodSpec) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	for _, spec := range specs {
		admission, err := r.admit(spec, nil)
		if err != nil {
			return err
		}
		if admission == nil {
			continue
		}
		if run := r.judge(admission, false); run != nil {
			workers.Add(1)
			go func() {
				defer workers.Done()
				r.start(run, 0)
			}()
		}
	}
	return nil
}

// admission is what the kubelet did with one pod.
type admission struct {
	run    *podRun
	calls  []Call
	before map[string]bool // healthy units
	reason string          // "" if it was admitted
}

// admit runs the kubelet's admission. Nil is returned for a number that the history has used before.
func (r *Run) admit(spec *PodSpec, hook func(Call, int)) (*admission, error) {
	if r.admitted[spec.Number] {
		return nil, nil
	}
	r.admitted[spec.Number] = true
	for _, s := range r.book.live() {
		if s.pod.spec.Name == spec.Name {
			r.end(s.pod.spec.Number) // no two pods of one name are there at once
		}
	}
	pod := makePod(spec, "uid-"+strconv.Itoa(spec.Number))
	r.first[pod.UID], r.families[pod.UID] = map[string]Half{}, map[string]string{}
	for i := range spec.Containers {
		container := &spec.Containers[i]
		if !container.isLone() {
			r.first[pod.UID][container.Name] = container.First
			r.families[pod.UID][container.Name] = container.Family
		}
	}
	again := time.Since(r.halfDone[spec.Name]) < joinWindow || time.Since(r.slowAt) < joinWindow
	made := &admission{run: &podRun{spec: spec, pod: pod, again: again}, before: r.healthy()}
	r.amidst = map[string]bool{}
	began := time.Now()
	r.kubelet.pods.add(pod)
	made.calls = r.tap.during(hook, func() {
		if result := r.kubelet.admit(pod); !result.Admit {
			made.reason = result.Message
		}
	})
	r.summary.slowest("admission", time.Since(began).Milliseconds())
	if wasSlow(began, made.calls) {
		r.summary.count("admissions too slow to judge whose a half is")
		r.slowAt, made.run.again = time.Now(), true
	}
	for i := range spec.Containers {
		container := &spec.Containers[i]
		made.run.slots = append(made.run.slots, &slot{
			pod: made.run, spec: container, index: i,
			units: r.kubelet.unitsOf(pod, container.Name, container.Family),
		})
	}
	return made, nil
}

// wasSlow says whether a busy machine may have kept the agent from what it knows a pod by: its listing
// of podresources ends after 1 s, and a half waits 5 s for the other one.
func wasSlow(began time.Time, calls []Call) bool {
	last := began
	for _, call := range calls {
		if call.at.Sub(last) > slowCall {
			return true
		}
		last = call.at
	}
	return time.Since(last) > slowCall || time.Since(began) > slowAdmission
}
