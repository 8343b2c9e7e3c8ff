package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dfaf701a/nestor/claude"
)

// line connects a CLI that was started ahead with the options of who takes it:
// what the CLI calls goes to theirs.
type line struct {
	owner atomic.Pointer[claude.Options]
	file  string // for variables; empty if there is none
}

var errNobody = errors.New("nobody has taken this CLI yet")

// through returns opts with callbacks that lead to the owner's, who has the same
// ones. The CLI is told of servers of this process, which takes it a while, but calls
// those of its owner.
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
// their servers of this process, and variables for the commands that it runs.
func (l *line) connect(ctx context.Context, s *claude.Session, opts claude.Options, env []string) error {
	l.owner.Store(&opts)
	if err := l.tell(env); err != nil {
		return err
	}
	servers := maps.Clone(opts.MCPServers)
	maps.DeleteFunc(servers, func(_ string, s claude.MCPServer) bool { _, ok := s.(*claude.InProcess); return !ok })
	if len(servers) == 0 {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, connectTime)
	defer stop()
	change, err := s.SetMCPServers(ctx, servers)
	if err == nil && len(change.Errors) > 0 {
		err = fmt.Errorf("MCP servers are not reached: %v", change.Errors)
	}
	return err
}

// envVariable names the file that the CLI reads before the first command that it
// runs, for variables (2.1.325). Settings would do it too, and take 20 ms.
const envVariable = "CLAUDE_ENV_FILE"

// prepare returns opts with a file for variables, where the CLI has its temporary
// files.
func (l *line) prepare(opts claude.Options) (claude.Options, error) {
	dir := os.TempDir()
	for _, kv := range opts.Env {
		switch name, value, _ := strings.Cut(kv, "="); name {
		case envVariable:
			return opts, fmt.Errorf("%s is set, and would be set anew", envVariable)
		case "TMPDIR":
			dir = value
		}
	}
	f, err := os.CreateTemp(dir, "nestor-env-*.sh")
	if err != nil {
		return opts, err
	}
	l.file = f.Name()
	opts.Env = append(slices.Clip(opts.Env), envVariable+"="+l.file)
	return opts, f.Close()
}

// tell gives a CLI variables for the commands that it runs.
func (l *line) tell(env []string) error {
	if len(env) == 0 {
		return nil
	}
	var script strings.Builder
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&script, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	return os.WriteFile(l.file, []byte(script.String()), 0o600)
}

// end removes the file, when the CLI has ended.
func (l *line) end() {
	if l.file != "" {
		os.Remove(l.file)
	}
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
