package main

import (
	"fmt"
	"regexp"
	"sync"
	"time"
)

// Violation is the first thing found wrong; the run ends there.
type Violation struct {
	Step  int    `json:"step"`
	Rule  string `json:"rule"`
	Text  string `json:"text"`
	Calls []Call `json:"calls,omitempty"` // of the last admission
}

// Summary is what the program prints.
type Summary struct {
	OK        bool       `json:"ok"`
	Seed      uint64     `json:"seed"`
	Policy    string     `json:"policy"`
	GPUs      []*GPU     `json:"gpus"`
	Steps     int        `json:"steps"`
	Seconds   float64    `json:"seconds"`
	Violation *Violation `json:"violation,omitempty"`

	// What has happened, so that a run in which nothing did is seen.
	Counts   map[string]int    `json:"counts"`
	Refusals map[string]int    `json:"refusals"` // by sentence, names and numbers left out
	Examples map[string]string `json:"examples"`
	Slowest  map[string]int    `json:"slowest_ms"`
	Spent    map[string]int64  `json:"spent_ms"`          // by kind of step
	History  []Step            `json:"history,omitempty"` // after a violation

	mutex sync.Mutex
}

func newSummary(seed uint64, policy string) *Summary {
	return &Summary{
		Seed: seed, Policy: policy, Counts: map[string]int{}, Refusals: map[string]int{},
		Examples: map[string]string{}, Slowest: map[string]int{}, Spent: map[string]int64{},
	}
}

func (s *Summary) count(what string) { s.add(what, 1) }

func (s *Summary) add(what string, number int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.Counts[what] += number
}

func (s *Summary) slowest(what string, milliseconds int64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.Slowest[what] = max(s.Slowest[what], int(milliseconds))
}

func (s *Summary) spend(what string, time time.Duration) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.Spent[what] += time.Milliseconds()
}

var particular = regexp.MustCompile(
	`GPU-[0-9a-f-]+(::[cm][0-9]+)?|allocation [0-9a-f]+|judge/\S+|[0-9]+`)

// refusal keeps one kind of refusal, with an example.
func (s *Summary) refusal(sentence string) {
	kind := particular.ReplaceAllString(sentence, "…")
	if len(kind) > 120 {
		kind = kind[:120]
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.Refusals[kind]++
	if s.Examples[kind] == "" {
		s.Examples[kind] = sentence
	}
}

// violate keeps the first violation.
func (s *Summary) violate(step int, rule, format string, values ...any) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.Violation == nil {
		s.Violation = &Violation{Step: step, Rule: rule, Text: fmt.Sprintf(format, values...)}
	}
}

func (s *Summary) violated() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.Violation != nil
}
