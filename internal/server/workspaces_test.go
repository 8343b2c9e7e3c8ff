package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/server"
)

func TestWorkspacesReachTheBackend(t *testing.T) {
	d := newDaemon()
	client, _ := serve(t, d, socket(t), server.Options{})
	id := d.add(1)
	if diff, err := client.Diff(t.Context(), id); err != nil || len(diff.Files) != 1 || diff.Patch != "+x" {
		t.Errorf("the diff is %+v, %v", diff, err)
	}
	if list, err := client.Workspaces(t.Context()); err != nil || len(list) != 1 || list[0].Work != "commits" {
		t.Errorf("the list is %+v, %v", list, err)
	}
	if gone, err := client.CollectWorkspaces(t.Context(), api.Collection{Age: time.Hour, Size: 5, Force: true}); err != nil || len(gone) != 0 {
		t.Errorf("collected %+v, %v", gone, err)
	}
	if w, err := client.EndWorkspace(t.Context(), id, api.Ending{End: "drop"}); err != nil || w.End != "drop" || w.Why != "why" {
		t.Errorf("it ended as %+v, %v", w, err)
	}
	if w, err := client.ApproveWorkspace(t.Context(), id, api.Approval{By: "ada", Reason: "good"}); err != nil || w.End != "merge" {
		t.Errorf("it is approved as %+v, %v", w, err)
	}
	want := []string{"diff " + string(id), "workspaces", "collect 1h0m0s 5 true", "end " + string(id) + " drop", "approve " + string(id) + " ada good"}
	if !slices.Equal(d.asked, want) {
		t.Errorf("asked %q, want %q", d.asked, want)
	}
}

func TestBadEndsOfWorkspacesAreRefused(t *testing.T) {
	d := newDaemon()
	client, _ := serve(t, d, socket(t), server.Options{})
	if _, err := client.EndWorkspace(t.Context(), d.add(1), api.Ending{End: "burn"}); err == nil || !strings.Contains(err.Error(), `end "burn": want merge or drop`) {
		t.Errorf("got %v", err)
	}
	_, err := client.CollectWorkspaces(t.Context(), api.Collection{Age: -1})
	if p, ok := err.(*api.Problem); !ok || p.Status != http.StatusBadRequest {
		t.Errorf("got %v", err)
	}
	if len(d.asked) != 0 {
		t.Errorf("asked %q", d.asked)
	}
}
