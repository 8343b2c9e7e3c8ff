package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/dfaf701a/nestor"
)

// Diff returns what a run changed in its folder on the daemon's machine: of one
// that works still, so far. It fails with a [*Problem] of [TypeNoChanges] if
// nothing is known.
func (c *Client) Diff(ctx context.Context, id nestor.ID) (Diff, error) {
	var d Diff
	err := c.do(ctx, request{path: runPath(id, "/diff")}, &d)
	return d, err
}

// Workspaces lists the folders of runs of which something is there, oldest first.
func (c *Client) Workspaces(ctx context.Context) ([]Space, error) {
	var list struct{ Workspaces []Space }
	err := c.do(ctx, request{path: "/v1/workspaces"}, &list)
	return list.Workspaces, err
}

// CollectWorkspaces removes folders of runs, and returns those that are gone.
// What would be lost stays, unless it is forced.
func (c *Client) CollectWorkspaces(ctx context.Context, o Collection) ([]Space, error) {
	var list struct{ Workspaces []Space }
	err := c.do(ctx, request{method: http.MethodPost, path: "/v1/workspaces/collect", body: o}, &list)
	return list.Workspaces, err
}

// EndWorkspace merges or drops the work of a run that is over.
func (c *Client) EndWorkspace(ctx context.Context, id nestor.ID, e Ending) (Workspace, error) {
	var w Workspace
	err := c.do(ctx, request{method: http.MethodPost, path: spacePath(id, "/end"), body: e}, &w)
	return w, err
}

// ApproveWorkspace says that the work of a run is good. If it waits for that to be
// merged, it is.
func (c *Client) ApproveWorkspace(ctx context.Context, id nestor.ID, a Approval) (Workspace, error) {
	var w Workspace
	err := c.do(ctx, request{method: http.MethodPost, path: spacePath(id, "/approve"), body: a}, &w)
	return w, err
}

func spacePath(id nestor.ID, rest string) string {
	return "/v1/workspaces/" + url.PathEscape(string(id)) + rest
}
