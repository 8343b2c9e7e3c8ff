package engine

import "time"

// SetTryFor sets how long an answer is waited for, before anything is asked.
func SetTryFor(d time.Duration) { tryFor = d }

// Scatter has the documents of a tree lie in all buckets, as those of one that layout 5
// had, or gathers them in one again. It is called before any run is made.
func Scatter(scattered bool) { gathered = !scattered }
