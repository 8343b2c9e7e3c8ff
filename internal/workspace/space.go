package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/dfaf701a/nestor"
)

// Kind is what sort of folder a run works in.
type Kind string

// The kinds. The zero Kind lets [Spaces.Open] choose.
const (
	Plain    Kind = "plain"    // a folder that is there, shared with whoever uses it
	Swarm    Kind = "swarm"    // the workspace of a swarm, shared by its runs
	Worktree Kind = "worktree" // a git worktree on a branch of its own, shared with nobody
)

// End is what becomes of a worktree when its run is over.
type End string

// The ends. The zero End is Keep.
const (
	Keep  End = "keep"  // the work is committed to the run's branch; folder and branch stay
	Merge End = "merge" // the branch is merged into the one it came from; if that cannot be, Keep
	Drop  End = "drop"  // folder and branch are removed with all that is in them
)

// SpaceOptions say how runs get their folders.
type SpaceOptions struct {
	Project   string                       // the project's folder; empty means the process's
	Git       string                       // the command; empty means git
	Base      string                       // where branches of runs begin: a branch or commit; empty means HEAD
	Setup     []string                     // a command that is run in a new worktree; empty means none
	SetupTime time.Duration                // how long that may take; zero means 10 minutes
	Copy      []string                     // files and folders to copy into a new worktree, relative to the project
	Ports     int                          // how many TCP ports a run gets, at most 100; zero means none
	PortsFile string                       // where they are noted for all daemons of this user; empty means one in the temporary folder
	End       End                          // of runs that are closed with an empty one
	Log       *slog.Logger                 // nil discards
	Wrap      func(argv []string) []string // what confines the set-up; nil means nothing
}

// Spaces gives runs the folders that they work in. Its methods may be called by
// many at once, also in several processes of one project.
type Spaces struct {
	options SpaceOptions
	git     git
	log     *slog.Logger
}

// New returns the spaces of a project. It starts nothing, and looks at nothing.
func New(o SpaceOptions) *Spaces {
	s := &Spaces{options: o, git: git{command: o.Git}, log: o.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s
}

// Request says what a run needs.
type Request struct {
	Run   nestor.ID
	Root  nestor.ID
	Slug  string // what it is about, for people; anything may be in it
	Swarm string // the swarm it belongs to; empty means none
	Dir   string // for Plain: absolute, or inside the project; for Worktree: where in the project; empty means the project
	Kind  Kind   // empty chooses: see [Spaces.Open]
	// Env is the environment of the set-up, besides the ports and what it is told of
	// the run; nil means that of this process.
	Env []string
}

// Space is the folder of one run, from Open to Close. Its methods must not be
// called at once, but for Watch, Diff and Watcher.
type Space struct {
	Dir       string   // where the run works, absolute
	Below     string   // where that is in a worktree, with slashes; empty means that it is all of it
	Kind      Kind     // what it got
	Branch    string   // of a worktree, such as nestor/0199…-fix-the-test
	Env       []string // for its processes: NESTOR_PORT_BASE, NESTOR_PORT_COUNT
	State     string   // what is in STATE.md of its swarm; cut at 64 KiB
	StateFile string   // its name, which the run may write to; empty without a swarm

	spaces *Spaces
	rec    record
	env    []string    // of the set-up; nil means that of this process
	home   string      // where what we know of the run is
	lock   *os.File    // nobody else has this run
	repo   *repository // of a worktree
	shadow *shadow     // nil if there is no git
}

// Repository is what git in a worktree uses outside of it.
type Repository struct {
	Dir   string   // of the repository; all of it is read
	Write []string // in it, what is written when work is committed to the run's branch
}

// Repository returns the repository of a worktree. What is written is made if it
// is missing. It is zero for other kinds.
func (sp *Space) Repository() (Repository, error) {
	if sp.repo == nil {
		return Repository{}, nil
	}
	r := Repository{Dir: sp.repo.common}
	for _, dir := range []string{"objects", "refs/heads/nestor", "logs/refs/heads/nestor", "worktrees/" + string(sp.rec.Run)} {
		dir = filepath.Join(sp.repo.common, filepath.FromSlash(dir))
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return Repository{}, err
		}
		r.Write = append(r.Write, dir)
	}
	return r, nil
}

// Approval says who finds the work of a run good.
type Approval struct {
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Time   time.Time `json:"time"`
}

// Approved returns who has approved the run's work; nil means nobody.
func (sp *Space) Approved() *Approval { return sp.rec.Approved }

// Approve takes note that somebody finds the run's work good; nil takes it back.
func (sp *Space) Approve(a *Approval) error {
	sp.rec.Approved = a
	return sp.rec.write(sp.home)
}

// InUseError says that a run has its folder open already.
type InUseError struct{ Run nestor.ID }

func (e *InUseError) Error() string {
	return fmt.Sprintf("run %s works in its folder already: wait for it, or cancel it", e.Run)
}

// lockTime is how long a run waits for somebody who looks at its folder.
const lockTime = 2 * time.Second

var errClosed = errors.New("the space is closed")

// Open gives a run its folder. A run that was interrupted gets the one it had, with
// what is in it, whatever the rest of the request says; a run that has it open is
// an [*InUseError].
//
// If the request names no kind, a run of a swarm works in the swarm's workspace,
// but in a worktree if that is a link to a git checkout: its commits are for a
// branch of its own. Other runs work in the folder that they name.
//
// Whether a run may work in the Dir that it names is for the caller to decide.
func (s *Spaces) Open(ctx context.Context, q Request) (*Space, error) {
	sp, err := s.open(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("opening the workspace of run %.60s: %w", q.Run, err)
	}
	return sp, nil
}

// ErrNoSpace says that nothing is there of a run.
var ErrNoSpace = errors.New("nothing is there of its workspace")

// Reopen opens the folder of a run that has one. If nothing is there of it any
// more, it fails with [ErrNoSpace].
func (s *Spaces) Reopen(ctx context.Context, run nestor.ID) (*Space, error) {
	if _, err := nestor.ParseID(string(run)); err != nil {
		return nil, err
	}
	project, err := s.project()
	if err != nil {
		return nil, err
	}
	if rec, known, err := readRecord(homeOf(project, run)); err != nil {
		return nil, err
	} else if !known || rec.State == opening || rec.State == dropping {
		return nil, fmt.Errorf("run %s: %w", run, ErrNoSpace)
	}
	return s.Open(ctx, Request{Run: run})
}

func (s *Spaces) open(ctx context.Context, q Request) (_ *Space, err error) {
	if _, err := nestor.ParseID(string(q.Run)); err != nil {
		return nil, err
	}
	project, err := s.project()
	if err != nil {
		return nil, err
	}
	sp := &Space{spaces: s, env: q.Env, home: homeOf(project, q.Run)}
	if err := sp.take(ctx, project, q.Run); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && sp.lock != nil {
			sp.lock.Close()
		}
	}()
	rec, known, err := readRecord(sp.home)
	if err != nil {
		return nil, err
	}
	if known && rec.State == dropping {
		if err := s.discard(ctx, project, sp.home, rec, sp.lock); err != nil {
			return nil, err
		}
		sp.lock.Close()
		if err := sp.take(ctx, project, q.Run); err != nil {
			return nil, err
		}
		known = false
	}
	if known && rec.State != opening {
		sp.rec = rec
	} else if sp.rec, err = s.choose(ctx, project, known, q); err != nil {
		os.RemoveAll(sp.home)
		return nil, err
	}
	if sp.rec.Swarm != "" {
		if sp.State, sp.StateFile, err = readState(project, sp.rec.Swarm); err != nil {
			return nil, err
		}
	}
	if sp.Env, err = s.reserve(ctx, sp); err != nil {
		return nil, err
	}
	if sp.rec.Kind == Worktree {
		err = sp.openWorktree(ctx)
	} else {
		err = sp.openFolder(ctx, project)
	}
	if err != nil {
		return nil, errors.Join(err, s.release(ctx, sp.home))
	}
	sp.Dir, sp.Kind, sp.Branch = sp.rec.Dir, sp.rec.Kind, sp.rec.Branch
	if rel, err := filepath.Rel(sp.rec.Top, sp.rec.Dir); err == nil && sp.rec.Top != "" && rel != "." {
		sp.Below = filepath.ToSlash(rel)
	}
	return sp, nil
}

// take makes the run this process's. Somebody who only looks at it is waited for.
func (sp *Space) take(ctx context.Context, project string, run nestor.ID) (err error) {
	ctx, stop := context.WithTimeoutCause(ctx, lockTime, &InUseError{run})
	defer stop()
	for {
		if err := makeHome(project, sp.home); err != nil {
			return err
		}
		sp.lock, err = lockHome(sp.home)
		if sp.lock != nil || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// choose says what a run gets that has nothing yet.
func (s *Spaces) choose(ctx context.Context, project string, known bool, q Request) (record, error) {
	now := time.Now().UTC()
	rec := record{Version: recordVersion, Run: q.Run, Root: q.Root, Kind: q.Kind, State: opening, Swarm: q.Swarm, Slug: slug(q.Slug), Made: now, Used: now}
	from := project
	if q.Swarm != "" {
		dir, linked, err := swarmDir(project, q.Swarm)
		if err != nil {
			return record{}, err
		}
		from = dir
		if rec.Kind == "" {
			rec.Kind = Swarm
			if repo, err := s.git.open(ctx, dir); linked && err == nil && repo.head != "" && repo.top != "" {
				rec.Kind = Worktree
			}
		}
		if rec.Kind == Worktree && !linked {
			return record{}, fmt.Errorf("the workspace of swarm %s is a folder of its own, so there is no checkout to make a worktree of: make %s a link to the project, or use kind %q", q.Swarm, filepath.Join("swarms", q.Swarm, "workspace"), Swarm)
		}
	}
	switch rec.Kind {
	case "":
		rec.Kind = Plain
		fallthrough
	case Plain:
		dir, err := plainDir(project, q.Dir)
		if err != nil {
			return record{}, err
		}
		rec.Dir = dir
	case Swarm:
		if q.Swarm == "" {
			return record{}, fmt.Errorf("kind %q needs the name of a swarm", Swarm)
		}
		rec.Dir = from
	case Worktree:
		below := "."
		if q.Swarm == "" && q.Dir != "" {
			var err error
			if below, err = placeIn(project, q.Dir); err != nil {
				return record{}, err
			}
		}
		err := s.chooseWorktree(ctx, project, from, known, &rec)
		rec.Dir = filepath.Join(rec.Dir, below)
		return rec, err
	default:
		return record{}, fmt.Errorf("kind %.40q: want %s, %s or %s", q.Kind, Plain, Swarm, Worktree)
	}
	return rec, nil
}

// openFolder opens what is no worktree: the folder is there, and what it holds at
// the start is noted, if git is there to do it.
func (sp *Space) openFolder(ctx context.Context, project string) error {
	if sp.rec.Kind == Swarm {
		dir, _, err := swarmDir(project, sp.rec.Swarm) // it may lead elsewhere now
		if err != nil {
			return err
		}
		sp.rec.Dir = dir
	}
	if info, err := os.Stat(sp.rec.Dir); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is no folder", sp.rec.Dir)
	}
	sp.shadow = &shadow{git: sp.spaces.git.holding(sp.lock), dir: filepath.Join(sp.home, "git"), index: filepath.Join(sp.home, "index"), tree: sp.rec.Dir, format: "sha1"}
	if sp.rec.State == opening {
		tree, err := sp.shadow.capture(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			// The run can work all the same; only its Diff cannot be had.
			sp.rec.NoStart = err.Error()
			sp.spaces.log.Warn("start of a run not noted", "run", sp.rec.Run, "dir", sp.rec.Dir, "error", err)
		}
		sp.rec.Start = tree.id
	}
	return sp.note(open)
}

// note writes down what has become of the run.
func (sp *Space) note(state string) error {
	sp.rec.State, sp.rec.Used = state, time.Now().UTC()
	return sp.rec.write(sp.home)
}

func (s *Spaces) project() (string, error) {
	dir := s.options.Project
	if dir == "" {
		dir = "."
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}
