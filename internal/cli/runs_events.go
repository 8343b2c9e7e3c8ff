package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

type runsEventsOptions struct {
	query      api.EventsQuery
	asJSON     bool
	streamJSON bool
}

func newRunsEvents() *cobra.Command {
	var opts runsEventsOptions
	cmd := &cobra.Command{
		Use:   "events ID",
		Short: "Print what happened in a run",
		Long: `Print what happened in a run, a line for each event.

With --follow it goes on until the run has ended, and if no daemon does the work,
this command does; Ctrl-C ends the printing, not the run. Each event has a
position, "seq" in JSON, which --after takes.`,
		Example: "nestor runs events 5a1c2b3d\nnestor runs events 5a1c2b3d --follow --tree\nnestor runs events 5a1c2b3d --after 4711 --stream-json",
		Args:    runArgs("a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.asJSON && opts.streamJSON {
				return misuse(cmd, "--json and --stream-json exclude each other")
			}
			if !mayBeID(args[0]) {
				return noID(cmd, args[0])
			}
			return withDialer(cmd, opts.query.Follow, func(ctx context.Context, dial dialer) error {
				return runsEvents(ctx, dial, newRunsPage(cmd.OutOrStdout()), args[0], opts)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.query.Follow, "follow", false, "wait for more until the run has ended")
	flags.BoolVar(&opts.query.Tree, "tree", false, "also of all runs below it")
	flags.Uint64Var(&opts.query.After, "after", 0, "only those behind position `N`")
	flags.BoolVar(&opts.asJSON, "json", false, "print one JSON document")
	flags.BoolVar(&opts.streamJSON, "stream-json", false, "print one JSON document per event and line")
	return cmd
}

func runsEvents(ctx context.Context, dial dialer, page runsPage, id string, opts runsEventsOptions) error {
	show := page.event
	switch {
	case opts.streamJSON:
		show = func(e nestor.Event) error { return printEvent(page.w, e, "", "\n") }
	case opts.asJSON:
		begin := "[\n"
		show = func(e nestor.Event) error {
			defer func() { begin = ",\n" }()
			return printEvent(page.w, e, begin, "")
		}
		if _, err := io.WriteString(page.w, "{\"events\": "); err != nil {
			return err
		}
		defer func() {
			if begin == "[\n" {
				io.WriteString(page.w, "[]}\n")
			} else {
				io.WriteString(page.w, "\n]}\n")
			}
		}()
	}
	return follow(ctx, dial, id, opts.query, show)
}

// follow hands the events of a run on, whose id may be abbreviated. When the
// daemon goes away it asks the next one for those that are missing.
func follow(ctx context.Context, dial dialer, text string, q api.EventsQuery, show func(nestor.Event) error) error {
	for {
		l, err := dial(ctx)
		if err != nil {
			return fmt.Errorf("%w; go on with --after %d", err, q.After)
		}
		err = handOn(ctx, l.client, text, &q, show)
		closed := l.close()
		if l.own || !gone(err) {
			return errors.Join(err, closed)
		}
	}
}

// handOn hands events on, and takes note of how far it came.
func handOn(ctx context.Context, client *api.Client, text string, q *api.EventsQuery, show func(nestor.Event) error) error {
	id, err := resolveRun(ctx, client, text)
	if err != nil {
		return err
	}
	for e, err := range client.Events(ctx, id, *q) {
		if err != nil {
			return err
		}
		if err := show(e); err != nil {
			return err
		}
		q.After = max(q.After, e.Head().Seq)
	}
	return nil
}

func printEvent(w io.Writer, e nestor.Event, before, after string) error {
	data, err := nestor.EncodeEvent(e)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s%s", before, data, after)
	return err
}

// event prints one line: when, in which run, what.
func (p runsPage) event(e nestor.Event) error {
	head := e.Head()
	when := head.Time.UTC().Format("2006-01-02T15:04:05.000Z")
	if p.person {
		when = head.Time.In(p.now.Location()).Format(time.TimeOnly)
	}
	row := []cell{{when, "2"}, {shortID(head.Run), "2"}, eventCell(e)}
	return p.table([][]cell{row})
}
