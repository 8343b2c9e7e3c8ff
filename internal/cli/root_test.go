package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

func TestExitCodes(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	limit := &nestor.LimitError{Limit: "depth", Max: 3, Asked: 4}
	for _, test := range []struct {
		ctx  context.Context
		err  error
		want exitCode
	}{
		{t.Context(), nil, exitOK},
		{t.Context(), errors.New("no"), exitError},
		{t.Context(), fmt.Errorf("run: %w", &usageError{"no"}), exitUsage},
		{t.Context(), fmt.Errorf("run: %w", &codedError{exitPartial, errors.New("half")}), exitPartial},
		{t.Context(), fmt.Errorf("run: %w", limit), exitRefused},
		{t.Context(), fmt.Errorf("run: %w", &api.Problem{Type: api.TypeLimit, Limit: limit}), exitRefused},
		{t.Context(), fmt.Errorf("runs: %w", &api.Problem{Status: http.StatusForbidden}), exitRefused},
		{t.Context(), fmt.Errorf("runs: %w", &api.Problem{Status: http.StatusUnauthorized}), exitRefused},
		{t.Context(), fmt.Errorf("runs: %w", &api.Problem{Status: http.StatusNotFound}), exitError},
		{cancelled, errors.New("no"), exitCancelled},
		{cancelled, nil, exitOK},
	} {
		if got := codeOf(test.ctx, test.err); got != test.want {
			t.Errorf("%v is %d, want %d", test.err, got, test.want)
		}
	}
}
