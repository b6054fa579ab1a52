package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
)

// DeviceLimit is what a limits file says of one GPU.
type DeviceLimit struct {
	UUID      string `json:"uuid"`
	Core      int    `json:"core_percent"`
	Memory    int64  `json:"memory_limit_bytes"`
	Mode      int    `json:"compute_mode"` // libvgpu.limits.ComputeMode
	Weight    int    `json:"weight"`
	MPSThread int    `json:"mps_thread_percentage"`
	MPSPinned int64  `json:"mps_pinned_bytes"`
}

// elastic is ComputeMode.ELASTIC: may use what nobody else wants.
const elastic = 2

// Limits is a whole limits file.
type Limits struct {
	Allocation string        `json:"allocation"`
	Family     string        `json:"family"`
	Devices    []DeviceLimit `json:"devices"`
	Error      string        `json:"error"`
}

// reader asks the project's own Python (read_limits.py) what a limits file says, so that its layout is
// written down in one place only.
type reader struct {
	mutex   sync.Mutex
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Reader
}

func startReader(command string) (*reader, error) {
	words := strings.Fields(command)
	if len(words) == 0 {
		return nil, fmt.Errorf("--reader names no command")
	}
	process := exec.Command(words[0], words[1:]...)
	input, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &reader{command: process, input: input, output: bufio.NewReader(output)}, process.Start()
}

// read returns what the files in an allocation's directory say.
func (r *reader) read(directory string) (*Limits, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if _, err := fmt.Fprintln(r.input, directory); err != nil {
		return nil, err
	}
	line, err := r.output.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	limits := &Limits{}
	if err := json.Unmarshal(line, limits); err != nil {
		return nil, err
	}
	if limits.Error != "" {
		return nil, fmt.Errorf("%s", limits.Error)
	}
	return limits, nil
}

func (r *reader) stop() {
	_ = r.input.Close() // the end of its input ends it
	_ = r.command.Wait()
}
