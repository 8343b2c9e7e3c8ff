package server

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

// parameters are those of a URL. Each is to be read once; done then tells what
// was wrong with any, or left over.
type parameters struct {
	values url.Values
	known  []string
	err    error // the first
}

func readParameters(r *http.Request) *parameters {
	values, err := url.ParseQuery(r.URL.RawQuery)
	p := &parameters{values: values}
	if err != nil {
		p.err = problem(http.StatusBadRequest, "parameters: %v", err)
	}
	return p
}

// noParameters is the error of a request that has some and takes none.
func noParameters(r *http.Request) error { return readParameters(r).done() }

func (p *parameters) done() error {
	for _, name := range slices.Sorted(maps.Keys(p.values)) {
		switch {
		case !slices.Contains(p.known, name):
			takes := "there are none here"
			if len(p.known) > 0 {
				takes = "there are " + strings.Join(p.known, ", ")
			}
			p.refuse(name, "unknown; %s", takes)
		case len(p.values[name]) > 1:
			p.refuse(name, "given %d times; want it once", len(p.values[name]))
		}
	}
	return p.err
}

func (p *parameters) refuse(name, format string, args ...any) {
	if p.err == nil {
		p.err = problem(http.StatusBadRequest, "parameter %.60s: %s", name, fmt.Sprintf(format, args...))
	}
}

func (p *parameters) text(name string) string {
	p.known = append(p.known, name)
	return p.values.Get(name)
}

// flag reads a boolean. The name alone means true.
func (p *parameters) flag(name string) bool {
	text := p.text(name)
	if text == "" {
		return p.values.Has(name)
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		p.refuse(name, "%.60q; want true or false", text)
	}
	return on
}

func (p *parameters) id(name string) nestor.ID {
	text := p.text(name)
	if text == "" {
		return ""
	}
	id, err := nestor.ParseID(text)
	if err != nil {
		p.refuse(name, "%v", err)
	}
	return id
}

func (p *parameters) position(name string) uint64 {
	text := p.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		p.refuse(name, "%.60q; want a position, a whole number", text)
	}
	return n
}

func (p *parameters) count(name string) int {
	text := p.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		p.refuse(name, "%.60q; want a whole number, zero or more", text)
	}
	return int(n)
}

func (p *parameters) time(name string) time.Time {
	text := p.text(name)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		p.refuse(name, "%.60q; want a time such as 2026-01-02T15:04:05Z", text)
	}
	return t
}

func (p *parameters) span(name string) time.Duration {
	text := p.text(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		p.refuse(name, "%.60q; want a span of time such as 30s", text)
		return 0
	}
	return d
}

var states = []nestor.State{
	nestor.Queued, nestor.Starting, nestor.Running, nestor.Waiting, nestor.Success, nestor.Partial, nestor.Error, nestor.Cancelled,
}

func (p *parameters) state(name string) nestor.State {
	state := nestor.State(p.text(name))
	if state != "" && !slices.Contains(states, state) {
		p.refuse(name, "%.60q; there are %s", state, strings.Trim(fmt.Sprint(states), "[]"))
	}
	return state
}

// query reads what chooses runs, but for the text.
func (p *parameters) query() api.Query {
	return api.Query{
		Root: p.id("root"), Parent: p.id("parent"), Roots: p.flag("roots"), State: p.state("state"),
		Agent: p.text("agent"), Swarm: p.text("swarm"), Since: p.time("since"), Until: p.time("until"),
		Limit: p.count("limit"), After: p.position("after"),
	}
}

// eventsQuery reads what chooses events. A reader that comes back by itself
// says in a header where it was.
func (p *parameters) eventsQuery(lastEventID string) api.EventsQuery {
	q := api.EventsQuery{After: p.position("after"), Tree: p.flag("tree"), Follow: p.flag("follow"), Deltas: p.flag("deltas")}
	if lastEventID != "" {
		after, err := strconv.ParseUint(lastEventID, 10, 64)
		if err != nil && p.err == nil {
			p.err = problem(http.StatusBadRequest, "header Last-Event-ID: %.60q; want a position, a whole number", lastEventID)
		}
		q.After = max(q.After, after)
	}
	return q
}
