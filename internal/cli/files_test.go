package cli

import (
	"context"
	"errors"
	"io"
	"testing"
)

// Who waits for an input that does not come is not kept from ending.
func TestReadingIsInterrupted(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	done := make(chan error, 1)
	go func() {
		_, err := readAll(ctx, in, "stdin")
		done <- err
	}()
	cancel(enough)
	if err := <-done; !errors.Is(err, enough) {
		t.Errorf("it ended with %v", err)
	}
}
