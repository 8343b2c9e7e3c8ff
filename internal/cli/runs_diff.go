package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/workspace"
)

type diffOptions struct{ apply, force, list, json bool }

func (o *diffOptions) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.list, "list", false, "print the files alone, without what is different in them")
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON document")
}

func newRunsDiff() *cobra.Command {
	var opts diffOptions
	cmd := &cobra.Command{
		Use:   "diff ID",
		Short: "Show what a run changed, and bring it here from another machine",
		Long: `Show what a run changed. Of a run in a folder of the project, these are the files
that it was seen to change; in a worktree, or the workspace of a swarm, all
that is different since it began.

Of a run on another machine, these are the files that come back. With --apply they are put
into the project, all or none: a file that is not as it was there before the run
is a conflict, and then nothing is changed.`,
		Example: "nestor runs diff 5a1c2b3d\nnestor runs diff 5a1c2b3d --apply",
		Args:    runArgs("a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.force && !opts.apply {
				return misuse(cmd, "--force without --apply: nothing is changed")
			}
			return withRun(cmd, args[0], func(ctx context.Context, client *api.Client, id nestor.ID) error {
				return runsDiff(ctx, client, cmd.OutOrStdout(), id, opts)
			})
		},
	}
	opts.flags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&opts.apply, "apply", false, "put the files into the project")
	flags.BoolVar(&opts.force, "force", false, "with --apply: also change files that are not as they were before the run")
	return cmd
}

func runsDiff(ctx context.Context, client *api.Client, w io.Writer, id nestor.ID, opts diffOptions) (err error) {
	archive, err := client.Changes(ctx, id)
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Type == api.TypeNoChanges && !opts.apply {
		d, here := client.Diff(ctx, id)
		if here == nil {
			return printDiff(w, d, opts)
		}
		if p, ok := errors.AsType[*api.Problem](here); !ok || p.Type != api.TypeNoChanges {
			return here
		}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	if opts.apply {
		project, err := projectDir("")
		if err != nil {
			return err
		}
		return applyChanges(ctx, w, project, archive, opts.force)
	}
	list, err := workspace.List(ctx, archive, workspace.ApplyOptions{})
	if err != nil {
		return err
	}
	d := api.Diff{Files: []api.FileDiff{}}
	for _, c := range list {
		d.Files = append(d.Files, api.FileDiff{Path: c.Path, Action: c.Action, Size: c.Size, Link: c.Link})
	}
	return printDiff(w, d, opts)
}

// printDiff prints what a run changed.
func printDiff(w io.Writer, d api.Diff, opts diffOptions) error {
	if opts.json {
		return printJSON(w, d)
	}
	var b strings.Builder
	if len(d.Files) == 0 {
		b.WriteString("nothing is changed\n")
	}
	for _, f := range d.Files {
		fmt.Fprintf(&b, "%-6s %s%s\n", f.Action, plainLine(f.Path, 300), sizeOf(f))
	}
	for _, name := range d.Left {
		fmt.Fprintf(&b, "left   %s\n", plainLine(name, 300))
	}
	if d.Patch != "" && !opts.list {
		fmt.Fprintf(&b, "\n%s", printable(d.Patch))
	}
	if d.Cut {
		b.WriteString("… there is more than is here\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// sizeOf says how large a changed file is, if that is known.
func sizeOf(c api.FileDiff) string {
	switch {
	case c.Link != "":
		return " -> " + plainLine(c.Link, 300)
	case c.Action == workspace.Removed, c.Size == 0:
		return ""
	case c.Size == 1:
		return " (1 byte)"
	}
	return " (" + strconv.FormatInt(c.Size, 10) + " bytes)"
}

// applyChanges puts what an archive holds into the project.
func applyChanges(ctx context.Context, w io.Writer, project string, archive io.Reader, force bool) error {
	done, err := workspace.Apply(ctx, project, archive, workspace.ApplyOptions{Force: force})
	var b strings.Builder
	n := 0
	for _, of := range []struct {
		action string
		paths  []string
	}{{workspace.Written, done.Written}, {workspace.Modified, done.Modified}, {workspace.Removed, done.Removed}} {
		for _, name := range of.paths {
			fmt.Fprintf(&b, "%-6s %s\n", of.action, plainLine(name, 300))
			n++
		}
	}
	if conflict, ok := errors.AsType[*workspace.ConflictError](err); ok {
		for _, name := range conflict.Paths {
			fmt.Fprintf(&b, "conflict %s\n", plainLine(name, 300))
		}
		err = fmt.Errorf("%s not as before the run, so nothing was changed; --force changes %s all the same",
			isAre(len(conflict.Paths)), themIt(len(conflict.Paths)))
	} else if err == nil {
		fmt.Fprintf(&b, "%s changed in %s\n", filesOf(n), project)
	}
	_, written := io.WriteString(w, b.String())
	return errors.Join(err, written)
}

func filesOf(n int) string {
	if n == 1 {
		return "1 file"
	}
	return strconv.Itoa(n) + " files"
}

func isAre(n int) string {
	if n == 1 {
		return "1 file is"
	}
	return strconv.Itoa(n) + " files are"
}

func themIt(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}
