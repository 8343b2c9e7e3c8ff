package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor/api"
)

// connect returns a client of the project's daemon: the one that runs, or one
// in this process that ends with close.
func connect(_ *cobra.Command, _ string) (client *api.Client, close func() error, err error) {
	return nil, nil, errors.New("there is no daemon yet")
}
