package engine

import "time"

// SetTryFor sets how long an answer is waited for, before anything is asked.
func SetTryFor(d time.Duration) { tryFor = d }
