package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dfaf701a/nestor/claude"
)

// line connects a CLI that was started ahead with the options of who takes it:
// what the CLI calls goes to theirs.
type line struct {
	owner atomic.Pointer[claude.Options]
}

var errNobody = errors.New("nobody has taken this CLI yet")

// through returns opts with callbacks that lead to the owner's, who has the same
// ones. Servers of this process are left out: the CLI gets the owner's.
func (l *line) through(opts claude.Options) claude.Options {
	if opts.CanUseTool != nil {
		opts.CanUseTool = func(ctx context.Context, q *claude.PermissionRequest) (claude.Decision, error) {
			if o := l.owner.Load(); o != nil {
				return o.CanUseTool(ctx, q)
			}
			return nil, errNobody
		}
	}
	if opts.OnFrame != nil {
		opts.OnFrame = func() {
			if o := l.owner.Load(); o != nil {
				o.OnFrame()
			}
		}
	}
	hooks := reflect.ValueOf(&opts.Hooks).Elem()
	for i := range hooks.NumField() {
		if list := hooks.Field(i); list.Kind() == reflect.Slice && list.Len() > 0 {
			list.Set(l.hooks(list, func(o *claude.Options) reflect.Value { return reflect.ValueOf(o.Hooks).Field(i) }))
		}
	}
	opts.MCPServers = maps.Clone(opts.MCPServers)
	maps.DeleteFunc(opts.MCPServers, func(_ string, s claude.MCPServer) bool { _, ok := s.(*claude.InProcess); return ok })
	return opts
}

// hooks returns a list of hooks that lead to those in the owner's list, which of
// finds.
func (l *line) hooks(list reflect.Value, of func(*claude.Options) reflect.Value) reflect.Value {
	copied := reflect.MakeSlice(list.Type(), list.Len(), list.Len())
	reflect.Copy(copied, list)
	for i := range copied.Len() {
		f := copied.Index(i).FieldByName("Func")
		if f.IsNil() {
			continue
		}
		f.Set(reflect.MakeFunc(f.Type(), func(args []reflect.Value) []reflect.Value {
			if o := l.owner.Load(); o != nil {
				return of(o).Index(i).FieldByName("Func").Call(args)
			}
			return []reflect.Value{reflect.Zero(f.Type().Out(0)), reflect.ValueOf(&errNobody).Elem()}
		}))
	}
	return copied
}

// connectTime is how long a CLI may take until it has what is its owner's.
const connectTime = 5 * time.Second

// connect makes opts the owner's: their callbacks are called, and the CLI gets
// their servers of this process, and variables for what it starts.
func (l *line) connect(ctx context.Context, s *claude.Session, opts claude.Options, env []string) error {
	l.owner.Store(&opts)
	ctx, stop := context.WithTimeout(ctx, connectTime)
	defer stop()
	servers := maps.Clone(opts.MCPServers)
	maps.DeleteFunc(servers, func(_ string, s claude.MCPServer) bool { _, ok := s.(*claude.InProcess); return !ok })
	told := make(chan error, 1)
	go func() { told <- tell(ctx, s, env) }()
	var failure error
	if len(servers) > 0 {
		change, err := s.SetMCPServers(ctx, servers)
		switch {
		case err != nil:
			failure = err
		case len(change.Errors) > 0:
			failure = fmt.Errorf("MCP servers are not reached: %v", change.Errors)
		}
	}
	return errors.Join(failure, <-told)
}

// tell gives a CLI variables for what it starts from now on.
func tell(ctx context.Context, s *claude.Session, env []string) error {
	if len(env) == 0 {
		return nil
	}
	variables := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		variables[name] = value
	}
	// Settings are how a running CLI takes variables (2.1.325).
	return s.ApplyFlagSettings(ctx, map[string]any{"env": variables})
}

// early names the first kind of hook that a CLI calls before anybody has taken
// it, or nothing.
func early(h claude.Hooks) string {
	for name, n := range map[string]int{
		"Setup": len(h.Setup), "SessionStart": len(h.SessionStart), "InstructionsLoaded": len(h.InstructionsLoaded),
		"ConfigChange": len(h.ConfigChange), "Other": len(h.Other), "PreModelSwitch": len(h.PreModelSwitch), "CwdChanged": len(h.CwdChanged),
	} {
		if n > 0 {
			return name
		}
	}
	return ""
}

// command returns what a CLI is wrapped in; nil if it is not.
func command(opts claude.Options) []string {
	if opts.Wrap == nil {
		return nil
	}
	return append([]string{}, opts.Wrap([]string{"claude"})...)
}
