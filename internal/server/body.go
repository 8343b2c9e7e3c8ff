package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"
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
	// net/http takes the deadline back when the body has ended. What has none
	// has no connection that could hang.
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTime))
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, problem(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes; put what is large into a file and name it", maxBody)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, problem(http.StatusRequestTimeout, "the body did not come within %v", readTime)
		}
		return nil, problem(http.StatusBadRequest, "reading the body: %v", err)
	}
	return data, nil
}

// decode reads data, all of it, into v.
func decode(data []byte, v any) error {
	if data = bytes.Trim(data, " \t\r\n"); bytes.Equal(data, []byte("null")) {
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
