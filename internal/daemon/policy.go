package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent/anthropic"
	"github.com/dfaf701a/nestor/agent/claudecode"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/runner"
	"github.com/dfaf701a/nestor/internal/sandbox"
)

// policy says what runs may do: they have the tools that the task, or else the
// config, names, in a sandbox of the level that it names. Whatever the level, all
// that a run starts ends with it, and with this process.
type policy struct {
	own      defaults
	roles    permission.Table
	provider string   // of tasks that name none
	pass     []string // variables that runs get besides
	cli      claudecode.Options
	home     string // of the worker's files, which no run may see
	copies   string // where the copies are in which runs work; empty if they work in the project
	door     string // the socket that runs may use
	log      *slog.Logger
	outlets  outlets
	groups   func() (dir string, err error) // the control group for those of commands, or why there is none
}

// defaults are what runs may do whose tasks do not say.
type defaults struct {
	tools  []string // nil means all
	mode   string   // empty means acceptEdits
	role   string   // empty means none
	level  sandbox.Level
	hosts  []string       // that they may reach at level strict; nil means that no list bounds them
	limits sandbox.Limits // of what processes use
}

// newPolicy returns the policy of a worker that keeps its files in home.
func newPolicy(o Worker, home string) (*policy, error) {
	roles, err := permission.Roles(o.Roles)
	if err != nil {
		return nil, err
	}
	p := &policy{
		own:   defaults{limits: o.Limits, hosts: o.Hosts, tools: o.Tools, mode: o.Mode, role: o.Role, level: sandbox.Off},
		roles: roles, provider: o.Provider, pass: o.Pass, cli: o.SDK, home: home, log: o.Log,
	}
	if o.Sandbox != "" {
		if p.own.level, err = sandbox.ParseLevel(o.Sandbox); err != nil {
			return nil, err
		}
	}
	p.groups = sync.OnceValues(sandbox.OpenGroups)
	// What runs left there that were cut off.
	if err := os.RemoveAll(filepath.Join(home, "tmp")); err != nil {
		return nil, fmt.Errorf("removing what runs have left: %w", err)
	}
	return p, nil
}

// Rights returns what a run may do.
func (p *policy) Rights(run runner.Run, place runner.Place) (runner.Rights, error) {
	o, err := api.ParseTaskOptions(run.Task.Data)
	if err != nil {
		return runner.Rights{}, err
	}
	r := runner.Rights{Tools: p.own.tools, Mode: p.own.mode}
	provider := cmp.Or(run.Task.Provider, p.provider)
	if o.Tools != nil {
		r.Tools = o.Tools
	}
	if o.PermissionMode != "" {
		r.Mode = o.PermissionMode
	}
	dir := place.Dir
	role, err := p.bounds(run.Task, o, dir)
	if err != nil {
		return r, err
	}
	r.BaseEnv = granted(os.Environ(), grants(role, provider, p.pass))
	if role == nil && len(place.Write)+len(place.Read)+len(place.Folders) > 0 {
		r.Ask.CanUseTool = allowFiles(place, nil)
	}
	if role != nil {
		r.Read = elsewhere(role.Read, dir)
		role.Read = append(role.Read, place.Write...)
		if len(role.Write) > 0 {
			role.Write = append(role.Write, place.Write...)
		}
		r.Decide = func(tool string, input json.RawMessage) runner.Verdict {
			if v, ours := decideOurs(tool, role); ours {
				return v
			}
			return verdict(role.Decide(permission.Call{Tool: tool, Input: input, Dir: dir}))
		}
		if len(place.Folders) > 0 {
			r.Ask.CanUseTool = allowFiles(runner.Place{Folders: place.Folders}, r.Decide)
		}
	}
	level, err := p.levelOf(o)
	if err != nil {
		return r, err
	}
	profile := sandbox.Profile{Level: level}
	if level != sandbox.Off {
		temp := p.temp(run.ID, run.Attempt)
		if profile, err = p.profile(level, dir, temp); err != nil {
			return r, err
		}
		grant(&profile, place, role)
		profile.Read, profile.Write = append(profile.Read, place.Read...), append(profile.Write, place.Folders...)
		if run.Folder != "" {
			profile.Read = append(profile.Read, run.Folder)
		}
		if role != nil {
			confine(&profile, role, provider)
		}
		r.Env = []string{"TMPDIR=" + temp}
		if hosts := p.hostsOf(o); hosts != nil {
			if err := p.letOut(&profile, &r, run, hosts, role, provider); err != nil {
				return r, err
			}
		}
	}
	if role != nil {
		equip(role, place)
	}
	if profile.Limits = p.limitsOf(o); profile.Limits != (sandbox.Limits{}) {
		if err := os.MkdirAll(filepath.Join(p.home, "tmp"), 0o700); err != nil {
			return r, err
		}
		if profile.Group, err = p.groups(); err != nil && profile.Limits.Processors > 0 {
			return r, fmt.Errorf("how many processors a run uses at once cannot be limited here: %w; leave it out", err)
		}
		profile.Exceeded = p.temp(run.ID, run.Attempt) + ".exceeded"
		r.Exceeded = func() []string { return linesOf(profile.Exceeded) }
	}
	r.Ends = level != sandbox.Off || profile.Limits != (sandbox.Limits{})
	r.Wrap, err = sandbox.Wrap(profile)
	if level == sandbox.Off && err != nil && profile.Limits == (sandbox.Limits{}) {
		p.log.Warn("runs are not supervised", "error", err) // what they start may outlive them
		return r, nil
	}
	return r, err
}

// limitsOf returns what a run's processes may use.
func (p *policy) limitsOf(o api.TaskOptions) sandbox.Limits {
	l := p.own.limits
	if o.Whole && p.copies == "" { // another machine has limits of its own
		l = sandbox.Limits{}
	}
	l.Memory, l.Processes, l.CPU = cmp.Or(o.Resources.Memory, l.Memory), cmp.Or(o.Resources.Processes, l.Processes), cmp.Or(o.Resources.CPU, l.CPU)
	l.Processors = cmp.Or(o.Resources.Processors, l.Processors)
	return l
}

// maxLines bounds what is read of a file of lines.
const maxLines = 16 << 10

// linesOf returns the lines of a file; none if it is not there.
func linesOf(name string) []string {
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, maxLines))
	return slices.Collect(strings.FieldsFuncSeq(strings.ToValidUTF8(string(text), "\ufffd"), func(r rune) bool { return r == '\n' }))
}

// bounds returns the policy of the role that a task, or else the config, names,
// within those of the runs above it; nil if none is named.
func (p *policy) bounds(t nestor.Task, o api.TaskOptions, dir string) (*permission.Policy, error) {
	name := p.own.role
	if o.Role != "" {
		name = o.Role
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	project := filepath.Dir(p.home)
	if _, inside := within(p.home, dir); inside { // a worktree is the project, for who works there
		project = dir
	}
	place := permission.Place{
		Workspace: dir, Project: project, Logs: filepath.Join(p.home, "logs"), SwarmDev: t.Swarm == "swarm_dev",
	}
	var own *permission.Policy
	if name != "" {
		role, err := p.roles.For(name, place)
		if err != nil {
			return nil, err
		}
		own = &role
	}
	if own, err = p.narrowed(own, o.Above, p.root(dir)); err != nil {
		return nil, err
	}
	if own != nil && o.Tools != nil {
		own.Tools = permission.MeetTools(own.Tools, toolNames(o.Tools))
	}
	return meetRoles(own, o, place, p.roles)
}

// root returns what the project is for who works in dir: on another machine its copy.
func (p *policy) root(dir string) string {
	if p.copies == "" {
		return filepath.Dir(p.home)
	}
	place, inside := within(p.copies, dir)
	if !inside {
		return dir
	}
	name, _, _ := strings.Cut(place, "/")
	return filepath.Join(p.copies, name)
}

// grant gives a sandbox what a run uses outside of its folder.
func grant(s *sandbox.Profile, place runner.Place, role *permission.Policy) {
	if role == nil || len(role.Write) > 0 {
		s.Write = append(s.Write, place.Write...)
	} else {
		s.Read = append(s.Read, place.Write...)
	}
	if place.Repository.Dir == "" {
		return
	}
	s.Read = append(s.Read, place.Repository.Dir)
	if role == nil || role.Git > permission.No {
		s.Write = append(s.Write, place.Repository.Write...)
	}
}

// verdict returns a decision as the runner takes it.
func verdict(d permission.Decision) runner.Verdict {
	switch d.Verdict {
	case permission.Allow:
		return runner.Verdict{Allowed: true, Rule: d.Rule}
	case permission.Ask:
		return runner.Verdict{Ask: true, Reason: d.Reason, Rule: d.Rule}
	}
	return runner.Verdict{Reason: d.Reason, Rule: d.Rule}
}

// elsewhere returns the folders that are there and not in dir.
func elsewhere(folders []string, dir string) (list []string) {
	for _, folder := range folders {
		if _, inside := within(dir, folder); inside {
			continue
		}
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			list = append(list, folder)
		}
	}
	return list
}

// confine gives a sandbox the bounds of a role. The CLI speaks to the model from
// inside, so it keeps the web.
func confine(s *sandbox.Profile, role *permission.Policy, provider string) {
	dir := s.Write[0] // where it works
	if !slices.Contains(role.Write, dir) {
		s.Read, s.Write = append(s.Read, dir), s.Write[1:]
	}
	for _, folder := range role.Write {
		if !slices.Contains(s.Write, folder) {
			s.Write = append(s.Write, folder)
		}
	}
	for _, folder := range role.Read {
		if !slices.Contains(s.Write, folder) && !slices.Contains(s.Read, folder) {
			s.Read = append(s.Read, folder)
		}
	}
	if !role.Web && provider == anthropic.Type {
		s.Network = sandbox.None
	}
}

// temp returns the folder for what an attempt puts aside.
func (p *policy) temp(run nestor.ID, attempt uint64) string {
	return filepath.Join(p.home, "tmp", fmt.Sprintf("%s-%d", run, attempt))
}

// over removes what an attempt has left there.
func (p *policy) over(run nestor.ID, attempt uint64) {
	err := os.RemoveAll(p.temp(run, attempt))
	if err = errors.Join(err, os.RemoveAll(p.temp(run, attempt)+".exceeded")); err != nil {
		p.log.Warn("temporary files of a run are left", "run", run, "error", err)
	}
}

// profile says what a run may reach that works in dir: that, a folder for
// temporary files, the CLI and what it keeps of its own, and the web; nothing of
// the daemon's.
func (p *policy) profile(level sandbox.Level, dir, temp string) (sandbox.Profile, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return sandbox.Profile{}, err
	}
	state, err := p.state()
	if err == nil {
		err = os.MkdirAll(temp, 0o700)
	}
	if err != nil {
		return sandbox.Profile{}, err
	}
	profile := sandbox.Profile{
		Level: level, Write: append([]string{dir, temp}, state...), Read: []string{p.door}, Hide: []string{p.home}, Network: sandbox.Web,
	}
	if self, err := os.Executable(); err == nil {
		profile.Read = append(profile.Read, self)
	}
	if path, err := filepath.EvalSymlinks(p.cli.Path); p.cli.Path != "" && err == nil {
		profile.Read = append(profile.Read, filepath.Dir(path))
		if filepath.IsAbs(p.cli.Path) {
			profile.Read = append(profile.Read, p.cli.Path) // the links on the way to it
		}
	}
	return profile, nil
}

// state returns where the CLI keeps its settings and sessions. They are made if
// they are missing.
func (p *policy) state() ([]string, error) {
	home, err := os.UserHomeDir()
	if i := slices.IndexFunc(p.cli.Env, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }); i >= 0 {
		home, err = strings.TrimPrefix(p.cli.Env[i], "HOME="), nil
	}
	if err != nil {
		return nil, nil // the CLI has none either
	}
	folder, file := filepath.Join(home, ".claude"), filepath.Join(home, ".claude.json")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.WriteString("{}\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return []string{folder, file}, nil
}
