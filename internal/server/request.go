package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

// What is read of a body at most, and how long it may take to come.
const (
	maxBody  = 4 << 20
	readTime = 30 * time.Second
)

// readBody reads one JSON value into v, which is a pointer to a struct. Fields
// that it does not have are an error.
func readBody(w http.ResponseWriter, r *http.Request, v any) error {
	data, err := readAll(w, r)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return problem(http.StatusBadRequest, "the body is empty: want %s", fieldsOf(v))
	}
	return decode(data, v)
}

// readOptionalBody leaves v as it is if there is no body.
func readOptionalBody(w http.ResponseWriter, r *http.Request, v any) error {
	data, err := readAll(w, r)
	if err != nil || len(data) == 0 {
		return err
	}
	return decode(data, v)
}

func readAll(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if given := r.Header.Get("Content-Type"); given != "" {
		if media, _, err := mime.ParseMediaType(given); err != nil || media != "application/json" {
			return nil, problem(http.StatusUnsupportedMediaType, "content type %.60q: want application/json", given)
		}
	}
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(readTime)) // what cannot has no connection that could hang
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, problem(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes; put what is large into a file and name it", maxBody)
		}
		return nil, problem(http.StatusBadRequest, "reading the body: %v", err)
	}
	control.SetReadDeadline(time.Time{})
	return data, nil
}

// decode reads data, all of it, into v.
func decode(data []byte, v any) error {
	if data = bytes.TrimSpace(data); bytes.Equal(data, []byte("null")) {
		return problem(http.StatusBadRequest, "body is null: want an object with %s", fieldsOf(v))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if d.InputOffset() < int64(len(data)) {
			return problem(http.StatusBadRequest, "body: something follows the object at byte %d; want nothing", d.InputOffset())
		}
		return nil
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		at := "body"
		if wrong.Field != "" {
			at += ": " + wrong.Field
		}
		return problem(http.StatusBadRequest, "%.200s is %.40s: want %s", at, wrong.Value, kindOf(wrong.Type))
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return problem(http.StatusBadRequest, "body: not JSON at byte %d: %v", syntax.Offset, err)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return problem(http.StatusBadRequest, "body: unknown field %.60s: want %s", name, fieldsOf(v))
	}
	return problem(http.StatusBadRequest, "body: %v", strings.TrimPrefix(err.Error(), "json: "))
}

// kindOf says what JSON a Go type is read from.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number that fits"
}

// fieldsOf lists the fields that v has in JSON: "task{agent, input}, key".
func fieldsOf(v any) string { return typeFields(reflect.TypeOf(v).Elem()) }

func typeFields(t reflect.Type) string {
	var names []string
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[time.Time]() {
			name += "{" + typeFields(field.Type) + "}"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

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
