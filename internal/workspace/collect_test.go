package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
)

// What is collected follows from the policy, and what would be lost with a run.
func TestCollect(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	type space struct {
		name string
		make func(t *testing.T, r repo, s *Spaces) *Space
		work string // what would be lost
		busy bool
	}
	worktree := func(tr tree, end End) func(*testing.T, repo, *Spaces) *Space {
		return func(t *testing.T, r repo, s *Spaces) *Space {
			sp := mustOpen(t, s, Request{Run: newRun(), Kind: Worktree})
			tr.write(t, sp.Dir)
			if end != "" {
				mustClose(t, sp, end)
			} else {
				sp.lock.Close()
			}
			return sp
		}
	}
	spaces := []space{
		{"nothing done", worktree(nil, Keep), "", false},
		{"interrupted before work", worktree(nil, ""), "", false},
		{"ignored files alone", worktree(tree{"ignored/x": "1"}, Keep), "", false},
		{"merged by hand", func(t *testing.T, r repo, s *Spaces) *Space {
			sp := worktree(tree{"merged": "1"}, Keep)(t, r, s)
			r.git("merge", "-q", sp.Branch)
			return sp
		}, "", false},
		{"plain", func(t *testing.T, r repo, s *Spaces) *Space {
			sp := mustOpen(t, s, Request{Run: newRun()})
			mustClose(t, sp, Keep)
			return sp
		}, "", false},
		{"not merged", worktree(tree{"x": "1"}, Keep), "commits that are not merged", false},
		{"not committed", worktree(tree{"x": "1"}, ""), "changes that are not committed", false},
		{"merged and changed again", func(t *testing.T, r repo, s *Spaces) *Space {
			sp := worktree(tree{"again": "1"}, Keep)(t, r, s)
			r.git("merge", "-q", "-m", "merge", sp.Branch)
			tree{"again": "2"}.write(t, sp.Dir)
			return sp
		}, "changes that are not committed", false},
		{"folder removed, branch not merged", func(t *testing.T, r repo, s *Spaces) *Space {
			sp := worktree(tree{"x": "1"}, Keep)(t, r, s)
			os.RemoveAll(sp.rec.Top)
			return sp
		}, "commits that are not merged", false},
		{"commits elsewhere", func(t *testing.T, r repo, s *Spaces) *Space {
			sp := worktree(tree{"y": "1"}, Keep)(t, r, s)
			for _, args := range [][]string{{"checkout", "-q", "--detach", "main"}, {"commit", "-q", "--allow-empty", "-m", "e"}} {
				if out, err := gitIn(sp.rec.Top, args...); err != nil {
					t.Fatalf("%v %s", err, out)
				}
			}
			return sp
		}, "commits that are not on its branch", false},
		{"nested repository", func(t *testing.T, r repo, s *Spaces) *Space {
			sp := worktree(tree{"sub/x": "1"}, "")(t, r, s)
			if out, err := gitIn(filepath.Join(sp.rec.Top, "sub"), "init", "-q"); err != nil {
				t.Fatal(out)
			}
			return sp
		}, "another repository", false},
		{"nothing is known", func(t *testing.T, r repo, s *Spaces) *Space {
			sp := worktree(tree{"x": "1"}, "")(t, r, s)
			os.RemoveAll(sp.home)
			return sp
		}, "nothing is known", false},
		{"in use", func(t *testing.T, r repo, s *Spaces) *Space {
			return mustOpen(t, s, Request{Run: newRun(), Kind: Worktree})
		}, "", true},
	}
	type step struct {
		name    string
		policy  Policy
		age     time.Duration // of all of them
		removes func(sp space) bool
	}
	none := func(space) bool { return false }
	safe := func(sp space) bool { return sp.work == "" && !sp.busy }
	idle := func(sp space) bool { return !sp.busy }
	for _, steps := range [][]step{
		{
			{"zero", Policy{}, 30 * day, none},
			{"zero with force", Policy{Force: true}, 30 * day, none},
			{"young", Policy{Age: 7 * day}, day, none},
			{"young with force", Policy{Age: 7 * day, Force: true}, day, none},
			{"not too large", Policy{Size: 1 << 40, Force: true}, 8 * day, none},
			{"old", Policy{Age: 7 * day}, 8 * day, safe},
			{"old with force", Policy{Age: 7 * day, Force: true}, 8 * day, idle},
		},
		{
			{"too large", Policy{Size: 1}, 0, safe},
			{"too large with force", Policy{Size: 1, Force: true}, 0, idle},
		},
	} {
		r := newRepo(t, nil)
		s := New(SpaceOptions{Project: r.dir})
		made := make([]*Space, len(spaces))
		for i, sp := range spaces {
			made[i] = sp.make(t, r, s)
		}
		removed := map[nestor.ID]bool{}
		list, err := s.List(t.Context())
		if err != nil || len(list) != len(spaces) {
			t.Fatalf("%d are listed, %v", len(list), err)
		}
		for _, info := range list {
			sp := spaces[slices.IndexFunc(made, func(m *Space) bool { return m.rec.Run == info.Run })]
			if !strings.Contains(info.Work, sp.work) || (info.Work == "") != (sp.work == "") || info.InUse != sp.busy || info.Kind == Worktree && info.Size == 0 {
				t.Errorf("%s: %+v", sp.name, info)
			}
		}
		for _, step := range steps {
			for _, sp := range made {
				setAge(t, sp, step.age)
			}
			gone, err := s.Collect(t.Context(), step.policy)
			if err != nil {
				t.Fatal(err)
			}
			for _, info := range gone {
				removed[info.Run] = true
			}
			for i, sp := range spaces {
				m := made[i]
				young := sp.name == "nothing is known" && step.policy.Age != 0 // its age is that of its id
				if want := step.removes(sp) && !young; removed[m.rec.Run] != want {
					t.Errorf("%s: %s: removed %v", step.name, sp.name, removed[m.rec.Run])
				}
				if removed[m.rec.Run] {
					hasNot(t, m.home)
					if m.rec.Kind == Worktree {
						hasNot(t, m.rec.Top)
					}
					if _, ok := r.at(m.rec.Branch, "README"); ok && m.rec.Branch != "" && sp.name != "nothing is known" {
						t.Errorf("%s: %s: branch %s is left", step.name, sp.name, m.rec.Branch)
					}
				} else if m.rec.Top != "" && !exists(m.rec.Top) && !strings.HasPrefix(sp.name, "folder removed") {
					t.Errorf("%s: %s: its folder is gone", step.name, sp.name)
				}
			}
			has(t, r.dir, "README", "hello\n")
		}
	}
}

// setAge makes a space as old as is said.
func setAge(t *testing.T, sp *Space, age time.Duration) {
	t.Helper()
	rec, known, err := readRecord(sp.home)
	if err != nil {
		t.Fatal(err)
	}
	if !known {
		return
	}
	rec.Used = time.Now().Add(-age)
	if err := rec.write(sp.home); err != nil {
		t.Fatal(err)
	}
}

// Of what is too large, the oldest goes first, and no more than has to.
func TestCollectOldestFirst(t *testing.T) {
	r := newRepo(t, nil)
	s := New(SpaceOptions{Project: r.dir})
	var runs []nestor.ID
	for i := range 4 {
		sp := mustOpen(t, s, Request{Run: newRun(), Kind: Worktree})
		tree{"ignored/x": strings.Repeat("x", 1<<20)}.write(t, sp.Dir)
		mustClose(t, sp, Keep)
		setAge(t, sp, time.Duration(10-i)*time.Hour)
		runs = append(runs, sp.rec.Run)
	}
	gone, err := s.Collect(t.Context(), Policy{Size: 5 << 19})
	if err != nil || len(gone) != 2 || gone[0].Run != runs[0] || gone[1].Run != runs[1] {
		t.Errorf("collected %+v, %v", gone, err)
	}
}

// What was being made or removed when its process ended is swept up by Collect, and
// made anew by Open.
func TestInterruptedSpaces(t *testing.T) {
	r := newRepo(t, nil)
	s := New(SpaceOptions{Project: r.dir})
	for _, state := range []string{opening, dropping} {
		for _, by := range []string{"collect", "open"} {
			t.Run(fmt.Sprint(state, " ", by), func(t *testing.T) {
				sp := mustOpen(t, s, Request{Run: newRun(), Kind: Worktree})
				if err := sp.note(state); err != nil {
					t.Fatal(err)
				}
				tree{"half": "h"}.write(t, sp.Dir)
				sp.lock.Close()
				if list, err := s.List(t.Context()); err != nil || len(list) != 0 {
					t.Errorf("listed %+v, %v", list, err)
				}
				if by == "collect" {
					if _, err := s.Collect(t.Context(), Policy{}); err != nil {
						t.Fatal(err)
					}
					hasNot(t, sp.Dir, sp.home)
					if got := r.git("branch", "--list", "nestor/*"); got != "" {
						t.Errorf("branches %q are left", got)
					}
					return
				}
				again := mustOpen(t, s, Request{Run: sp.rec.Run, Kind: Worktree})
				hasNot(t, filepath.Join(again.Dir, "half"))
				has(t, again.Dir, "README", "hello\n")
				mustClose(t, again, Drop)
			})
		}
	}
}

// collected collects until something is. A process that another test is about to
// start holds our locks for a moment.
func collected(t *testing.T, s *Spaces, p Policy) (gone []Info, err error) {
	for range 100 {
		if gone, err = s.Collect(t.Context(), p); err != nil || len(gone) > 0 {
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	return gone, err
}

// A record that is not as we write them is named, changes nothing elsewhere, and
// keeps nobody from the rest.
func TestRecordOfOthers(t *testing.T) {
	for name, change := range map[string]func(r repo, rec *record){
		"another run":    func(r repo, rec *record) { rec.Run = newRun() },
		"folder outside": func(r repo, rec *record) { rec.Top = r.dir },
		"where it works": func(r repo, rec *record) { rec.Dir = r.dir },
		"repository":     func(r repo, rec *record) { rec.From = filepath.Dir(r.dir) },
		"branch":         func(r repo, rec *record) { rec.Branch = "main" },
		"base":           func(r repo, rec *record) { rec.BaseRef = "HEAD" },
		"commit":         func(r repo, rec *record) { rec.Base = "--all" },
		"version":        func(r repo, rec *record) { rec.Version = 7 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t, nil)
			s := New(SpaceOptions{Project: r.dir})
			good, bad := Request{Run: newRun(), Kind: Worktree}, Request{Run: newRun(), Kind: Worktree}
			mustClose(t, mustOpen(t, s, good), Keep)
			sp := mustOpen(t, s, bad)
			mustClose(t, sp, Keep)
			rec := sp.rec
			change(r, &rec)
			if err := rec.write(sp.home); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Open(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "record.json") {
				t.Errorf("opening it: %v", err)
			}
			list, err := s.List(t.Context())
			if err != nil || len(list) != 2 {
				t.Fatalf("listed %+v, %v", list, err)
			}
			if gone, err := collected(t, s, Policy{Size: 1}); err != nil || len(gone) != 1 || gone[0].Run != good.Run {
				t.Errorf("collected %+v, %v", gone, err)
			}
			if gone, err := collected(t, s, Policy{Size: 1, Force: true}); err != nil || len(gone) != 1 {
				t.Errorf("by force, collected %+v, %v", gone, err)
			}
			hasNot(t, sp.rec.Top, sp.home)
			has(t, r.dir, "README", "hello\n")
			r.git("rev-parse", "main")
		})
	}
}
