//go:build !linux

package cli

import "errors"

func landlockVersion() (int, error) {
	return 0, errors.New("not available here")
}
