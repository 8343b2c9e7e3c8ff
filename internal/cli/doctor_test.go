package cli

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestExamineHangAndPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{}) // closed by the test: no check may outlive the bubble
		started := time.Now()
		got := examine(t.Context(), []check{
			{"hangs", func(context.Context) finding { <-end; return ok("") }},
			{"panics", func(context.Context) finding { panic("boom") }},
			{"tidies", func(ctx context.Context) finding {
				<-ctx.Done()
				time.Sleep(time.Second)
				return warning("wait", "interrupted")
			}},
			{"works", func(context.Context) finding { return ok("fine") }},
		})
		close(end)
		want := report{
			{"hangs", statusFailure, "no answer within 5s", "look for what hangs: a network file system, a stopped process"},
			{"panics", statusFailure, "panic: boom", "report this as a bug of nestor"},
			{"tidies", statusWarning, "interrupted", "wait"},
			{"works", statusOK, "fine", ""},
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%+v\nwant\n%+v", got, want)
		}
		if took := time.Since(started); took != checkTimeout+checkGrace {
			t.Errorf("took %v", took)
		}
	})
}
