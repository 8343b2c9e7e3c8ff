package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// The first argument of the processes that a wrapped command line starts.
const (
	superviseMark = "nestor-sandbox-supervise"
	keepMark      = "nestor-sandbox-keep"
	probeMark     = "nestor-sandbox-probe" // a keeper that makes its root and no more
)

// procsVariable is how many processors a program in Go uses.
const procsVariable = "GOMAXPROCS"

const (
	maxPiece  = 64 << 10 // bytes: Linux takes 128 KiB in one argument
	maxOrders = 1 << 20  // bytes: all arguments share 2 MiB with the environment
)

// orders are a profile, made ready for a machine.
type orders struct {
	Paths    []place `json:"paths,omitempty"`
	Private  bool    `json:"private,omitempty"`  // a root of its own
	User     bool    `json:"user,omitempty"`     // … which needs a namespace of users
	Isolated bool    `json:"isolated,omitempty"` // a network of its own
	Loopback bool    `json:"loopback,omitempty"` // … in which it can reach itself
	Outlet   []byte  `json:"outlet,omitempty"`   // … and has a way out, which is handed over there
	Level    Level   `json:"level,omitempty"`
	Network  Network `json:"network,omitempty"`
	Limits   Limits  `json:"limits,omitzero"`
	Group    []byte  `json:"group,omitempty"` // in which the command's own is made; empty means that limits are watched
	Exceeded []byte  `json:"exceeded,omitempty"`
	Procs    *string `json:"procs,omitempty"` // GOMAXPROCS of the command; nil means that it has none
}

// place is a path and what may be done with what is there. The paths are bytes,
// since those of files need not be text.
type place struct {
	Name []byte `json:"name,omitempty"` // as it is called; empty means as Real
	Real []byte `json:"real"`           // without links
	Use  use    `json:"use"`
}

// use is what may be done with what is at a place.
type use byte

const (
	useHide    use = iota
	useRead        // and execute
	useWrite       // and read, execute
	useDevice      // a device that may be read and written
	useTerm        // … and told what terminals are told
	useBeneath     // it is in the root, but only other places in it may be used
	usePin         // it cannot be moved away, with what is in it
)

// arguments returns the orders as arguments, which end with "--".
func (o orders) arguments() ([]string, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if len(text) > maxOrders {
		return nil, fmt.Errorf("the profile takes %d bytes, and %d are the most: name folders instead of what is in them", len(text), maxOrders)
	}
	var pieces []string
	for len(text) > maxPiece {
		pieces = append(pieces, string(text[:maxPiece]))
		text = text[maxPiece:]
	}
	pieces = append(pieces, string(text))
	list := append([]string{strconv.Itoa(len(pieces))}, pieces...)
	return append(list, "--"), nil
}

// parseArguments returns the orders that arguments returned, and what comes
// behind them.
func parseArguments(args []string) (o orders, argv []string, err error) {
	if len(args) == 0 {
		return o, nil, errors.New("there is no profile")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 1 || n > maxOrders/maxPiece+1 || len(args) < n+2 || args[n+1] != "--" {
		return o, nil, fmt.Errorf("the profile does not begin with its number of pieces and end with --: %.20q", args[0])
	}
	var text []byte
	for _, piece := range args[1 : n+1] {
		text = append(text, piece...)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, nil, fmt.Errorf("reading the profile: %w", err)
	}
	return o, args[n+2:], nil
}
