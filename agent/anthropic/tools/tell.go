package tools

import "fmt"

// told is an error whose text is for the model, in the CLI's words where it has
// some: whole sentences, unlike errors that are for people.
type told string

func (t told) Error() string { return string(t) }

func tell(format string, args ...any) error { return told(fmt.Sprintf(format, args...)) }
