// Package soak says how much of a long suite a test runs: a slice each time, which a
// seed chooses; all of it with NESTOR_SOAK=1, which 'make soak' sets. The same
// NESTOR_SEED chooses the same slice again.
package soak

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// All tells whether suites are run whole.
func All() bool { return os.Getenv("NESTOR_SOAK") != "" }

// Of returns all where suites are run whole, and some elsewhere.
func Of[T any](some, all T) T {
	if All() {
		return all
	}
	return some
}

// Rand returns what t chooses by, which the seed and its name decide. It logs the seed.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("NESTOR_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("NESTOR_SEED=%s: %v", text, err)
		}
	}
	t.Logf("NESTOR_SEED=%d", seed)
	name := fnv.New64a()
	name.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(seed, name.Sum64()))
}

// Draw returns some of the parts of a suite, in their order; all where suites are run
// whole.
func Draw[T any](t testing.TB, some int, all []T) []T {
	t.Helper()
	if All() || some >= len(all) {
		return all
	}
	indexes := Rand(t).Perm(len(all))[:some]
	slices.Sort(indexes)
	drawn := make([]T, 0, some)
	for _, i := range indexes {
		drawn = append(drawn, all[i])
	}
	return drawn
}
